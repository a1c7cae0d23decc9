//! Reads the objects of Cluster API in a namespace.

use std::collections::BTreeMap;

use futures::future::join_all;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, ListParams},
};

use super::{
    Objects,
    object::{Kind, Object},
};
use crate::{
    cli::{reading::all_pages, terminal::short},
    runtime::refusal::forbidden,
};

/// Reads all objects of Cluster API in a namespace. Kinds that cannot be read are unknown, and a note names each.
pub(in crate::cli) async fn read(control: &Client, namespace: &str) -> Objects {
    let lists = join_all(Kind::ALL.map(|kind| list(control, namespace, kind))).await;
    let mut found = Objects::default();
    let mut absent = Vec::new();
    for (kind, list) in Kind::ALL.into_iter().zip(lists) {
        match list {
            Ok(objects) => found.add(kind, objects),
            Err(kube::Error::Api(status)) if status.code == 404 => absent.push(kind.plural()),
            Err(error) => {
                let text = match forbidden(&error) {
                    Some(status) => status.message.clone(),
                    None => error.to_string(),
                };
                found.notes.push(format!("not read, so unknown: {} of Cluster API ({})", kind.plural(), short(&text)));
            }
        }
    }
    if !absent.is_empty() {
        found.notes.push(format!("the API server does not serve these kinds of Cluster API: {}", absent.join(", ")));
    }
    found
}

async fn list(control: &Client, namespace: &str, kind: Kind) -> kube::Result<Vec<DynamicObject>> {
    let api: Api<DynamicObject> = Api::namespaced_with(control.clone(), namespace, &kind.resource());
    all_pages(&api, ListParams::default()).await
}

impl Objects {
    pub(super) fn add(&mut self, kind: Kind, objects: Vec<DynamicObject>) {
        let mut of_kind = BTreeMap::new();
        for object in objects {
            let name = object.name_any();
            let decoded = serde_json::from_value::<Object>(object.data);
            match decoded {
                Ok(decoded) => drop(of_kind.insert(name, Object { metadata: object.metadata, ..decoded })),
                Err(error) => {
                    let kind = kind.name();
                    self.notes.push(format!("{kind} {name} cannot be read: {}", short(&error.to_string())));
                    self.unreadable.insert((kind, name));
                }
            }
        }
        self.by_kind.insert(kind, of_kind);
    }
}
