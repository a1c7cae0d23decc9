//! Users who request the preservation of Machines, by annotations of Machines and Nodes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::api_server::{MACHINES, NODES},
    world::{NAMESPACE, World},
};
use mcm_api::labels;

/// Values that users write; the last one is invalid.
const WORDS: [&str; 6] = ["now", "when-failed", "when-failed", "false", "", "perhaps"];

impl World {
    /// A user writes or removes an annotation.
    pub(super) fn ask_for_preservation(self: &Arc<Self>) {
        let word = if self.faults.one_in(3) { None } else { self.faults.pick(&WORDS) };
        let change = |object: &mut Value| {
            let meta = object["metadata"].as_object_mut().unwrap();
            let annotations = meta.entry("annotations").or_insert_with(|| json!({})).as_object_mut().unwrap();
            match word {
                Some(word) => drop(annotations.insert(labels::PRESERVE.to_owned(), json!(word))),
                None => drop(annotations.remove(labels::PRESERVE)),
            }
        };
        let (kind, server, namespace) = match self.faults.one_in(2) {
            true => (&NODES, &self.target, ""),
            false => (&MACHINES, &self.control, NAMESPACE),
        };
        let Some(name) = self.some(kind) else { return };
        self.say(format!("user: preserve={word:?} on {} {name}", kind.name));
        server.edit(kind, namespace, &name, change).unwrap();
    }
}
