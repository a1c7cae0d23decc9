//! Stored objects.

use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use serde_json::{Value, json};

/// An object as it is stored.
#[derive(Debug)]
pub struct ServerObject {
    pub value: Value,
    pub version: u64,
    text: OnceLock<Bytes>,
}

impl ServerObject {
    pub(super) fn new(value: Value, version: u64) -> Arc<Self> {
        Arc::new(Self { value, version, text: OnceLock::new() })
    }

    /// JSON, made once.
    pub(super) fn text(&self) -> Bytes {
        self.text.get_or_init(|| Bytes::from(self.value.to_string())).clone()
    }

    pub(super) fn metadata_only(&self) -> Value {
        let metadata = &self.value["metadata"];
        json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata })
    }

    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub fn is_terminating(&self) -> bool {
        self.value["metadata"]["deletionTimestamp"].is_string()
    }

    pub fn finalizers(&self) -> impl Iterator<Item = &str> {
        self.value["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }
}
