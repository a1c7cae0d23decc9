//! The shipped policy about the VM and the Node of a Machine, on a real API server.

use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::{
    control_plane::{ControlPlane, install},
    objects, wait,
};

const POLICIES: &str = include_str!("../../config/policies/machines.yaml");
/// The roles of the managers, ours and those of the Go programs, and that of `mcm adopt`.
const MANAGERS: [(&str, &str, &str); 3] = [
    ("mcm", include_str!("../../config/standalone/control.yaml"), "mcm"),
    ("go", include_str!("../../config/rbac/control.yaml"), "machine-controller-manager"),
    ("adopt", include_str!("../../config/cluster-api/adopt.yaml"), "mcm-adopt"),
];

/// A namespace in an API server with the policy in force, in which each user has one role.
struct Place {
    admin: Client,
    config: Config,
    namespace: String,
}

impl Place {
    async fn new() -> Self {
        static READY: OnceCell<()> = OnceCell::const_new();
        let control_plane = ControlPlane::shared().await;
        let config = Config::from_custom_kubeconfig(
            kube::config::Kubeconfig::read_from(control_plane.kubeconfig()).unwrap(),
            &kube::config::KubeConfigOptions::default(),
        )
        .await
        .unwrap();
        let place = async |name: &str| Self {
            admin: control_plane.client(),
            config: config.clone(),
            namespace: control_plane.namespace(name).await,
        };
        READY.get_or_init(async || place("first").await.prepare().await).await;
        let place = place("identity").await;
        place.bind().await;
        place
    }

    async fn prepare(&self) {
        install(&self.admin, &mcm::api::crd::crds()).await.unwrap();
        for document in serde_yaml_ng::Deserializer::from_str(POLICIES) {
            objects::apply(&self.admin, &Value::deserialize(document).unwrap()).await;
        }
        self.bind().await;
        // A policy takes effect a moment later.
        wait::until("the policy", async || {
            let forged = machine("m", &json!({ "spec": { "providerID": "cloud:///1" } }));
            let how = PostParams { dry_run: true, ..PostParams::default() };
            let said = self.machines("author").create(&how, &forged).await.err()?.to_string();
            said.contains("spec.providerID names the VM").then_some(())
        })
        .await;
    }

    /// An author writes Machines and no statuses.
    async fn bind(&self) {
        let author = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "author" },
            "rules": [{ "apiGroups": ["machine.sapcloud.io"], "resources": ["machines"], "verbs": ["*"] }],
        });
        let mut roles = vec![("author", author)];
        for (user, text, name) in MANAGERS {
            let documents = serde_yaml_ng::Deserializer::from_str(text).map(|it| Value::deserialize(it).unwrap());
            let role = documents
                .filter(|it| it["kind"].as_str().unwrap().ends_with("Role"))
                .find(|it| it["metadata"]["name"] == name);
            let mut role = role.unwrap();
            role["kind"] = json!("Role");
            role["metadata"] = json!({ "name": user });
            roles.push((user, role));
        }
        for (user, mut role) in roles {
            role["metadata"]["namespace"] = json!(self.namespace);
            // The verb * would include that of mcm adopt.
            if user == "author" {
                role["rules"][0]["verbs"] = json!(["get", "list", "create", "patch", "update", "delete"]);
            }
            objects::apply(&self.admin, &role).await;
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": { "name": user, "namespace": self.namespace },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user },
                "subjects": [{ "kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io" }],
            });
            objects::apply(&self.admin, &binding).await;
            // A binding takes effect a moment later.
            wait::until("the role of a user", async || {
                let how = PostParams { dry_run: true, ..PostParams::default() };
                self.machines(user).create(&how, &machine("m", &json!({}))).await.ok()
            })
            .await;
        }
    }

    fn machines(&self, user: &str) -> Api<DynamicObject> {
        let mut config = self.config.clone();
        config.auth_info.impersonate = Some(user.to_owned());
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", "Machine"));
        Api::namespaced_with(Client::try_from(config).unwrap(), &self.namespace, &kind)
    }
}

fn machine(name: &str, change: &Value) -> DynamicObject {
    let mut machine = objects::machine(name);
    objects::merge(&mut machine, change.clone());
    serde_json::from_value(machine).unwrap()
}

fn label(node: Value) -> Value {
    json!({ "metadata": { "labels": { "node": node } } })
}

#[rstest]
#[case::an_author("author", false)]
#[case::our_manager("mcm", true)]
#[case::the_go_programs("go", true)]
#[case::mcm_adopt("adopt", true)]
#[tokio::test]
async fn only_managers_and_mcm_adopt_set_the_vm_and_the_node_of_a_machine(#[case] user: &str, #[case] may: bool) {
    let place = Place::new().await;
    let machines = place.machines(user);
    let id = json!({ "spec": { "providerID": "cloud:///1" } });
    machines.create(&PostParams::default(), &machine("bare", &json!({}))).await.unwrap();
    for (name, change) in [("with-id", &id), ("with-node", &label(json!("a-1")))] {
        let made = machines.create(&PostParams::default(), &machine(name, change)).await;
        let patched = machines.patch("bare", &PatchParams::default(), &Patch::Merge(change)).await;
        for answer in [made, patched] {
            assert_eq!(answer.is_ok(), may, "{change}: {answer:?}");
            let text = answer.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(may || text.contains("only its manager sets it"), "{text}");
        }
    }
}

/// Labels, annotations, finalizers, deletion, and a manifest without both fields, as `kubectl replace` sends it.
#[tokio::test]
async fn an_author_may_change_everything_else() {
    let place = Place::new().await;
    let theirs = json!({ "metadata": { "labels": { "node": "a-1" } }, "spec": { "providerID": "cloud:///1" } });
    place.machines("mcm").create(&PostParams::default(), &machine("one", &theirs)).await.unwrap();
    let author = place.machines("author");
    for change in [
        json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "c": "d" } } }),
        json!({ "spec": { "drainTimeout": "10m0s" } }),
        theirs,
        label(Value::Null),
        json!({ "spec": { "providerID": "" } }),
    ] {
        author.patch("one", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    }
    let said = author.patch("one", &PatchParams::default(), &Patch::Merge(label(json!("b-1")))).await.unwrap_err();
    assert!(said.to_string().contains("the label node"), "{said}");
    author.delete("one", &kube::api::DeleteParams::default()).await.unwrap();
}
