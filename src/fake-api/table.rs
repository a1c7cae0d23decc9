//! Tables, as `kubectl get` requests them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    call::ApiCall,
    columns::{TableColumn, columns_of},
    object::ServerObject,
};

/// Tables in the answers to one request.
pub(super) struct TablePrinter {
    columns: Vec<TableColumn>,
    /// The objects that are sent beside the cells.
    included: IncludedObjects,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IncludedObjects {
    None,
    Metadata,
    Full,
}

impl TablePrinter {
    pub(super) fn from_call(call: &ApiCall) -> Self {
        let included = match call.query.get("includeObject").map(String::as_str) {
            Some("None") => IncludedObjects::None,
            Some("Object") => IncludedObjects::Full,
            _ => IncludedObjects::Metadata,
        };
        Self { columns: columns_of(call.kind), included }
    }

    /// A table of these objects. `meta` is that of the list.
    pub(super) fn table<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a ServerObject>,
        meta: &Value,
        now: Timestamp,
    ) -> Value {
        let columns: Vec<Value> = self.columns.iter().map(TableColumn::definition).collect();
        let rows: Vec<Value> = objects.into_iter().map(|object| self.row(object, now)).collect();
        json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": columns, "rows": rows })
    }

    fn row(&self, object: &ServerObject, now: Timestamp) -> Value {
        let cells: Vec<Value> = self.columns.iter().map(|column| column.cell(&object.value, now)).collect();
        let included = match self.included {
            IncludedObjects::None => Value::Null,
            IncludedObjects::Metadata => object.metadata_only(),
            IncludedObjects::Full => object.value.clone(),
        };
        json!({ "cells": cells, "object": included })
    }
}
