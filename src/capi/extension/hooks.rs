//! The hooks, and their requests and responses as Cluster API core writes and reads them.

use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};

/// Group and version of the hooks.
const API_VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";

/// The time that core waits for a response, in seconds.
pub(super) const TIMEOUT_SECONDS: u32 = 10;

/// A hook that the extension answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionHook {
    /// Core registers the extension.
    Discovery,
    /// The question of a control plane provider: can a Machine be updated in place?
    CanUpdateMachine,
    /// The same question of core, for the Machines of a set.
    CanUpdateMachineSet,
    /// The update of a Machine. Core repeats the request until it is done.
    UpdateMachine,
}

/// A request. The hook decides which objects it has; those of bootstrap providers are not read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HookRequest {
    pub current: RequestObjects,
    pub desired: RequestObjects,
}

/// The objects of a request, current or desired.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RequestObjects {
    pub machine: Value,
    pub machine_set: Value,
    pub infrastructure_machine: Value,
    pub infrastructure_machine_template: Value,
}

/// The progress of an update.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UpdateProgress {
    Done,
    /// Core repeats the request after some seconds.
    InProgress {
        message: String,
        retry_after_seconds: u32,
    },
}

impl ExtensionHook {
    /// All hooks.
    pub const ALL: [Self; 4] =
        [Self::Discovery, Self::CanUpdateMachine, Self::CanUpdateMachineSet, Self::UpdateMachine];

    /// Its name in Cluster API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discovery => "Discovery",
            Self::CanUpdateMachine => "CanUpdateMachine",
            Self::CanUpdateMachineSet => "CanUpdateMachineSet",
            Self::UpdateMachine => "UpdateMachine",
        }
    }

    /// The name of its handler; core adds that of the ExtensionConfig. Discovery has none.
    const fn handler(self) -> Option<&'static str> {
        match self {
            Self::Discovery => None,
            Self::CanUpdateMachine => Some("can-update-machine"),
            Self::CanUpdateMachineSet => Some("can-update-machine-set"),
            Self::UpdateMachine => Some("update-machine"),
        }
    }

    /// The path of its requests.
    pub fn path(self) -> String {
        let hook = self.name().to_lowercase();
        let handler = self.handler().map(|handler| format!("/{handler}")).unwrap_or_default();
        format!("/{API_VERSION}/{hook}{handler}")
    }
}

/// The response to Discovery.
pub(super) fn discovery() -> Value {
    let handlers = ExtensionHook::ALL.into_iter().filter_map(|hook| {
        let request_hook = json!({ "apiVersion": API_VERSION, "hook": hook.name() });
        Some(json!({
            "name": hook.handler()?, "requestHook": request_hook, "timeoutSeconds": TIMEOUT_SECONDS, "failurePolicy": "Fail",
        }))
    });
    let handlers: Vec<Value> = handlers.collect();
    with_status(ExtensionHook::Discovery, "Success", json!({ "handlers": handlers }))
}

/// The response to a question: the operations of a JSON patch that makes the covered fields of the current object the desired ones.
pub(super) fn claim(hook: ExtensionHook, operations: &[Value]) -> Value {
    if operations.is_empty() {
        return with_status(hook, "Success", json!({}));
    }
    let bytes = ByteString(serde_json::to_vec(operations).unwrap_or_default());
    let patch = json!({ "patchType": "JSONPatch", "patch": bytes });
    let field = match hook {
        ExtensionHook::CanUpdateMachineSet => "infrastructureMachineTemplatePatch",
        _ => "infrastructureMachinePatch",
    };
    with_status(hook, "Success", json!({ field: patch }))
}

/// The response to UpdateMachine.
pub(super) fn progress(progress: UpdateProgress) -> Value {
    let (message, retry_after_seconds) = match progress {
        UpdateProgress::Done => (String::new(), 0),
        UpdateProgress::InProgress { message, retry_after_seconds } => (message, retry_after_seconds),
    };
    let body = json!({ "message": message, "retryAfterSeconds": retry_after_seconds });
    with_status(ExtensionHook::UpdateMachine, "Success", body)
}

/// The response if the question cannot be answered now. Core repeats it, and neither updates nor replaces a machine meanwhile.
pub fn failure(hook: ExtensionHook, message: impl Into<String>) -> Value {
    with_status(hook, "Failure", json!({ "message": message.into() }))
}

fn with_status(hook: ExtensionHook, status: &str, mut body: Value) -> Value {
    body["apiVersion"] = json!(API_VERSION);
    body["kind"] = json!(format!("{}Response", hook.name()));
    body["status"] = json!(status);
    body
}
