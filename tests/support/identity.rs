//! ServiceAccounts with the rights of `config/standalone` and no more, one for each cluster, so that a call with the wrong
//! credentials is refused although both clusters are the same one.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    authorization::v1::SubjectAccessReview,
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams, config::Kubeconfig};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{control_plane::ControlPlane, objects, wait};

/// The account in the manifests of `config/standalone`.
pub const ACCOUNT: &str = "mcm";
/// Rights of a program: the roles of a folder of `config`, or those of the Go programs to the letter.
#[derive(Clone, Copy)]
pub enum Rights {
    Standalone,
    DropIn,
    Reference,
}

impl Rights {
    /// The rights without a choice of the test. `tests/faults` also runs the Go programs.
    pub fn usual() -> Self {
        if env!("CARGO_CRATE_NAME") == "faults" { Self::DropIn } else { Self::Standalone }
    }

    /// Objects in the control and in the target cluster, and the name of the account in the former.
    fn manifests(self) -> (Vec<Value>, Vec<Value>, &'static str) {
        let (control, target, account) = match self {
            Self::Standalone => STANDALONE,
            Self::DropIn | Self::Reference => DROP_IN,
        };
        let mut in_control: Vec<Value> = documents(control).collect();
        if matches!(self, Self::Reference) {
            in_control.iter_mut().for_each(without_namespaces);
        }
        (in_control, documents(target).collect(), account)
    }
}

/// The right that `config/rbac` has beyond those of the Go programs.
fn without_namespaces(role: &mut Value) {
    if let Some(rules) = role.pointer_mut("/rules").and_then(Value::as_array_mut) {
        rules.retain(|rule| rule["resources"] != json!(["namespaces"]));
    }
}

/// Roles in the control and in the target cluster, and the name of the account in the manifests.
const STANDALONE: (&str, &str, &str) = (
    include_str!("../../config/standalone/control.yaml"),
    concat!(
        include_str!("../../config/standalone/target.yaml"),
        "---\n",
        include_str!("../../config/standalone/bootstrap-tokens.yaml")
    ),
    ACCOUNT,
);
const DROP_IN: (&str, &str, &str) = (
    include_str!("../../config/rbac/control.yaml"),
    include_str!("../../config/rbac/target.yaml"),
    "machine-controller-manager",
);
const VIEW: &str = include_str!("../../config/rbac/view.yaml");
const TARGET_ACCOUNT: &str = "target";
/// Validity of tokens in seconds, longer than any test takes.
const TOKEN_SECONDS: i64 = 6 * 3600;

/// Kubeconfigs of the program under test.
pub struct Identity {
    /// For the control cluster.
    pub control: PathBuf,
    /// For the target cluster.
    pub target: PathBuf,
}

/// Creates an account in each cluster, in a namespace that both have, and writes their kubeconfigs into a folder.
pub async fn create(
    (control, target): (&ControlPlane, &ControlPlane),
    rights: Rights,
    namespace: &str,
    folder: &Path,
) -> Identity {
    let client = control.client();
    let (in_control, of_target, account_name) = rights.manifests();
    for mut object in in_control {
        object["metadata"]["namespace"] = namespace.into();
        objects::apply(&client, &object).await;
    }
    let in_target = target.client();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": TARGET_ACCOUNT, "namespace": namespace}});
    objects::apply(&in_target, &account).await;
    for object in of_target {
        objects::apply(&in_target, &bound(object, namespace)).await;
    }
    Identity {
        control: kubeconfig(&client, control.kubeconfig(), namespace, account_name, folder).await,
        target: kubeconfig(&in_target, target.kubeconfig(), namespace, TARGET_ACCOUNT, folder).await,
    }
}

/// Creates an account that is bound to `view` and `mcm-view`, in one namespace or in the whole cluster, and writes its
/// kubeconfig into a folder.
pub async fn viewer(control: &Client, admin: &Path, namespace: &str, is_of_cluster: bool, folder: &Path) -> PathBuf {
    let account = if is_of_cluster { "viewer-of-all" } else { "viewer" };
    let object =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}});
    objects::apply(control, &object).await;
    for object in documents(VIEW) {
        objects::apply(control, &object).await;
    }
    let kind = if is_of_cluster { "ClusterRoleBinding" } else { "RoleBinding" };
    for role in ["view", "mcm-view"] {
        let mut binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": format!("{account}-{role}-{namespace}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        });
        if !is_of_cluster {
            binding["metadata"]["namespace"] = namespace.into();
        }
        objects::apply(control, &binding).await;
    }
    for (group, resource) in [("", "pods"), ("machine.sapcloud.io", "machines")] {
        until_allowed(control, namespace, account, json!({"verb": "list", "group": group, "resource": resource})).await;
    }
    kubeconfig(control, admin, namespace, account, folder).await
}

/// Waits until the authorizer allows an account a request in its namespace: bindings reach it late.
async fn until_allowed(control: &Client, namespace: &str, account: &str, mut attributes: Value) {
    attributes["namespace"] = namespace.into();
    let what = format!("{account} of {namespace} to be allowed to {attributes}");
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let spec = json!({"user": user, "resourceAttributes": attributes});
    let review: SubjectAccessReview = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(control.clone());
    wait::until(&what, async || {
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        answer.status.is_some_and(|status| status.allowed).then_some(())
    })
    .await;
}

/// Lets an account list the names of all namespaces.
pub async fn may_list_namespaces(control: &Client, namespace: &str, account: &str) {
    let name = format!("{account}-namespaces-{namespace}");
    let (group, metadata) = ("rbac.authorization.k8s.io", json!({"name": name}));
    let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]});
    for object in [
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }),
    ] {
        objects::apply(control, &object).await;
    }
}

/// The server of a kubeconfig.
pub fn server(kubeconfig: &Path) -> SocketAddr {
    let written = read(kubeconfig);
    let url = written["clusters"][0]["cluster"]["server"].as_str().unwrap();
    url.trim_start_matches("https://").parse().unwrap()
}

/// Changes one field, such as `/clusters/0/cluster/server`.
pub fn change(kubeconfig: &Path, pointer: &str, value: Value) {
    let mut written = read(kubeconfig);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    written.pointer_mut(parent).unwrap()[key] = value;
    // A concurrent reader finds the old one or the new one.
    let new = kubeconfig.with_extension("new");
    std::fs::write(&new, serde_yaml_ng::to_string(&written).unwrap()).unwrap();
    std::fs::rename(new, kubeconfig).unwrap();
}

fn read(kubeconfig: &Path) -> Value {
    serde_yaml_ng::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap()
}

/// Roles are shared by all tests; a binding is one for each namespace.
fn bound(mut object: Value, namespace: &str) -> Value {
    if let Some(subject) = object.pointer_mut("/subjects/0") {
        subject["name"] = TARGET_ACCOUNT.into();
        subject["namespace"] = namespace.into();
        let name = object["metadata"]["name"].as_str().unwrap();
        object["metadata"]["name"] = format!("{name}-{namespace}").into();
    }
    object
}

/// Writes a kubeconfig with the credentials of an account that exists.
pub async fn kubeconfig(client: &Client, admin: &Path, namespace: &str, account: &str, folder: &Path) -> PathBuf {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let issued = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    let mut kubeconfig = Kubeconfig::read_from(admin).unwrap();
    let mut written = serde_json::to_value(&mut kubeconfig).unwrap();
    written["users"][0]["user"] = json!({"token": issued.status.unwrap().token});
    let path = folder.join(format!("{account}.kubeconfig"));
    std::fs::write(&path, serde_yaml_ng::to_string(&written).unwrap()).unwrap();
    path
}

fn documents(text: &str) -> impl Iterator<Item = Value> {
    serde_yaml_ng::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap())
}
