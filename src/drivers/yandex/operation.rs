//! Operations: work that the cloud carries out after its answer.

use mcm_driver::cloud::is_word;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{errors::Status, instance::Instance};

/// An operation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Operation {
    pub id: String,
    /// A failure is shown before the cloud has undone all: only then the operation is done.
    #[serde(default)]
    pub done: bool,
    metadata: Option<Metadata>,
    error: Option<Status>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    instance_id: Option<String>,
}

impl Operation {
    /// The instance on which it works.
    pub(crate) fn instance(&self) -> Option<&str> {
        self.metadata.as_ref()?.instance_id.as_deref().filter(|id| is_word(id))
    }

    /// Why it failed, once it is done.
    pub(crate) fn failure(&self) -> Option<&Status> {
        self.error.as_ref().filter(|_| self.done)
    }
}

/// An operation that the driver follows.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub id: String,
    /// The operation, as the answer to its request has it.
    pub answer: Option<Operation>,
    /// Number of the request that began it, of a creation.
    pub number: u32,
    /// When.
    pub since: Instant,
}

impl Begun {
    pub(crate) fn now(operation: Operation, number: u32) -> Self {
        Self { id: operation.id.clone(), answer: Some(operation), number, since: Instant::now() }
    }

    /// An operation that an earlier process began. `None` if none can have this ID.
    pub(crate) fn earlier(id: &str, number: u32) -> Option<Self> {
        is_word(id).then(|| Self { id: id.to_owned(), answer: None, number, since: Instant::now() })
    }
}

/// The VM of a Machine, or the operation that creates it.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    Found(Instance),
    Begun(Begun),
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::running(json!({"id": "fhmop"}), false, false)]
    #[case::being_undone(json!({"id": "fhmop", "error": {"code": 8, "message": "m"}}), false, false)]
    #[case::failed(json!({"id": "fhmop", "done": true, "error": {"code": 8, "message": "m"}}), true, true)]
    #[case::succeeded(json!({"id": "fhmop", "done": true, "response": {"@type": "x", "id": "fhm1"}}), true, false)]
    fn an_operation_failed_once_it_is_done(#[case] value: Value, #[case] is_done: bool, #[case] is_failed: bool) {
        let operation: Operation = serde_json::from_value(value).unwrap();
        assert_eq!((operation.done, operation.failure().is_some()), (is_done, is_failed));
    }

    #[test]
    fn an_operation_names_its_instance() {
        let of = |metadata| serde_json::from_value::<Operation>(json!({"id": "o", "metadata": metadata})).unwrap();
        assert_eq!(of(json!({"@type": "x", "instanceId": "fhm1"})).instance(), Some("fhm1"));
        assert_eq!(of(json!({"instanceId": "../x"})).instance(), None, "it is a part of paths");
        assert_eq!(of(Value::Null).instance(), None);
        assert!(Begun::earlier("fhmop", 0).is_some() && Begun::earlier("a/b", 0).is_none());
    }
}
