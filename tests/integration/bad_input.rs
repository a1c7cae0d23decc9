//! Texts that a user reads after a mistake. The whole text is compared, since all of it is read.

use k8s_openapi::{
    api::core::v1::Event, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::ListParams};
use mcm::api::crd::crds;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    support::{
        control_plane::{self, ControlPlane},
        objects, wait,
        world::World,
    },
    waits::{
        ask::{Tools, check},
        kinds::{CLASS_UNKNOWN, NODE_CLAIM, UNREADABLE},
    },
};

#[rstest]
#[case::negative_replicas(
    json!({"spec": {"replicas": -1}}),
    ".spec.replicas: Invalid value: -1: should be a non-negative integer"
)]
#[case::no_selector(
    json!({"spec": {"selector": null}}),
    "spec.selector: Required value: write matchLabels with labels that are also in template.metadata.labels"
)]
#[case::duration_in_words(
    json!({"spec": {"template": {"spec": {"drainTimeout": "2 hours"}}}}),
    "spec.template.spec.drainTimeout: Invalid value: \"2 hours\": write numbers with units, such as 20m, 1h30m or 90s"
)]
#[case::no_class(
    json!({"spec": {"template": {"spec": {"class": {"name": ""}}}}}),
    "spec.template.spec.class.name: Required value: write the name of the MachineClass that describes the VM"
)]
#[tokio::test]
async fn the_api_server_refuses_specs_that_could_never_work(#[case] change: Value, #[case] text: &str) {
    let control_plane = ControlPlane::shared().await;
    let mut deployment = objects::deployment("pool", 1);
    objects::merge(&mut deployment, change);
    deployment["metadata"]["namespace"] = "default".into();
    let answer = objects::try_apply(&control_plane.client(), &deployment).await;
    let Err(kube::Error::Api(status)) = answer else { panic!("stored, or no answer: {answer:?}") };
    // API servers before 1.36 name the type of a value that breaks a rule.
    let said = status.message.replace("Invalid value: \"string\"", "Invalid value: \"2 hours\"");
    assert_eq!(said, format!("MachineDeployment.machine.sapcloud.io \"pool\" is invalid: {text}"));
}

/// Mistakes that show only at the creation of a machine: `text` is the description of its last operation, and an event.
/// Each is corrected in the end, and then the same machine is created at once.
#[rstest]
#[case::no_such_class(json!({"metadata": {"name": "other"}}), json!({}), "Waiting for the MachineClass small, which does not exist")]
#[case::no_such_secret(
    json!({"secretRef": {"name": "nowhere"}}),
    json!({}),
    "Waiting for the Secret NAMESPACE/nowhere, which does not exist"
)]
#[case::no_such_credentials(
    json!({"credentialsSecretRef": {"name": "nowhere"}}),
    json!({}),
    "Waiting for the Secret NAMESPACE/nowhere, which does not exist"
)]
#[case::secret_of_another_namespace(
    json!({"secretRef": {"name": "pool", "namespace": "elsewhere"}}),
    json!({}),
    "Waiting for the Secret elsewhere/pool, which is in another namespace than the MachineClass"
)]
#[case::no_user_data(
    json!({}),
    json!({"stringData": null, "data": {"other": ""}}),
    "Waiting for the key userData in the Secrets of the class"
)]
#[case::unknown_provider(
    json!({"provider": "clouds-r-us"}),
    json!({}),
    "Waiting for a driver for the provider \"clouds-r-us\" of the MachineClass small"
)]
#[case::fields_of_another_type(
    json!({"providerSpec": {"bootLatency": 5, "volumes": -1}}),
    json!({}),
    "Cloud provider message - machine codes error: code = [InvalidArgument] message = [providerSpec.bootLatency: expected a \
     duration such as \"1m30s\", found the number 5; providerSpec.volumes: expected a whole number up to 1000 or a list of \
     names, found the number -1]"
)]
#[tokio::test]
async fn a_machine_that_cannot_be_made_says_why(#[case] class: Value, #[case] secret: Value, #[case] text: &str) {
    let world = World::new("wrong").await;
    let _manager = world.run(&[]).await;
    let text = text.replace("NAMESPACE", &world.namespace);
    let mut wrong = [objects::class("small"), objects::secret("pool")];
    objects::merge(&mut wrong[0], class);
    objects::merge(&mut wrong[1], secret);
    for object in wrong {
        world.apply(object).await;
    }
    world.apply(objects::deployment("pool", 1)).await;
    let (machine, description) = world
        .find("the machine to say something", |scene| {
            let (name, machine) = scene.machines.first_key_value()?;
            let description = machine.status.as_ref()?.last_operation.description.clone();
            (!description.is_empty()).then(|| (name.clone(), description))
        })
        .await;
    assert_eq!(description, text);
    warned(&world, &machine, &text).await;
    assert_eq!(world.cloud.count("/created").await, 0);

    world.classes().await;
    world.settled(1, "small").await;
    assert_eq!(world.scene.now().names(), [machine].into(), "the machine itself came up");
}

/// A typo in the name of the class. No VM can exist, so nothing is needed to delete the machine.
#[tokio::test]
async fn a_machine_of_a_class_that_never_existed_can_be_deleted() {
    let world = World::new("never").await;
    let _manager = world.run(&[]).await;
    world.apply(objects::deployment("pool", 1)).await;
    world
        .find("the machine to wait for its class", |scene| {
            let status = scene.machines.values().next()?.status.clone()?;
            status.last_operation.description.starts_with("Waiting for the MachineClass small").then_some(())
        })
        .await;
    world.remove_pool().await;
}

/// An unknown field does no harm, so the machine is created; the class shows both problems until it is corrected.
#[tokio::test]
async fn a_class_shows_what_its_driver_finds_wrong_with_it() {
    let world = World::new("wrong-class").await;
    let _manager = world.run(&[]).await;
    let shown = async || {
        let class = world.class_api().get("small").await.unwrap();
        class.metadata.annotations.unwrap_or_default().get("machine.sapcloud.io/class-problems").cloned()
    };
    let mut class = objects::class("small");
    objects::merge(&mut class, json!({"providerSpec": {"neverJion": true, "zone": 7}}));
    world.apply(class).await;
    let text = "providerSpec.zone: expected a non-empty string, found the number 7; \
                providerSpec.neverJion: unknown field, ignored: did you mean neverJoin? (warning)";
    assert_eq!(wait::until("the problems on the class", shown).await, text);
    warned_of(&world, "MachineClass", "small", &format!("The driver rejects the class: {text}")).await;

    world.classes().await;
    wait::until("the annotation to go", async || shown().await.is_none().then_some(())).await;
}

async fn warned(world: &World, machine: &str, text: &str) {
    warned_of(world, "Machine", machine, text).await;
}

async fn warned_of(world: &World, kind: &str, name: &str, text: &str) {
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let of_object = ListParams::default().fields(&format!("involvedObject.kind={kind},involvedObject.name={name}"));
    let warning = wait::until("a warning on the object", async || {
        let events = events.list(&of_object).await.unwrap().items;
        events.into_iter().find(|event| event.type_.as_deref() == Some("Warning"))
    })
    .await;
    assert_eq!(warning.message.as_deref(), Some(text));
}

#[tokio::test]
async fn objects_that_cannot_be_read_hold_up_no_others() {
    let control_plane = ControlPlane::apart().await.unwrap();
    let client = control_plane.client();
    control_plane::install(&client, &[lax(), untyped_classes()].concat()).await.unwrap();
    let world = World::apart(&control_plane, "unreadable").await;
    let mut garbled = objects::class("w-garbled");
    garbled["nodeTemplate"] = "large".into();
    for object in unreadable().into_iter().chain([garbled]) {
        world.apply(object).await;
    }
    control_plane::install(&client, &crds()).await.unwrap();

    let manager = world.run(&[]).await;
    world.pool(3, json!({})).await;
    world.settled(3, "small").await;
    world.roll("large").await;
    world.settled(3, "large").await;
    world.scale(1).await;
    world.settled(1, "large").await;
    world.assert_vms_match().await;
    assert_eq!(
        world.cloud.count("/created").await,
        6,
        "nothing was made for what cannot be read, nor too many of the others"
    );

    // Objects that depend on them wait.
    let mut machine = objects::machine("w-class-unknown");
    machine["spec"]["class"]["name"] = "w-garbled".into();
    world.apply(machine).await;
    objects::apply(&world.target, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w-node-claim"}}))
        .await;
    let tools = Tools::find();
    for case in [CLASS_UNKNOWN, UNREADABLE] {
        check(&world, &manager, &tools, &case).await;
    }

    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    wait::until("an event on the machine that cannot be read", async || {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let of_machine = |event: &&Event| {
            event.involved_object.kind.as_deref() == Some("Machine") && event.reason.as_deref() == Some("Unreadable")
        };
        let message = events.iter().find(of_machine)?.message.clone()?;
        message.contains("\"2 hours\" is not a duration").then_some(())
    })
    .await;

    // After the correction it is created.
    let repaired = json!({"spec": {"drainTimeout": "2h"}});
    let params = kube::api::PatchParams::default();
    world.machines().patch_metadata("stuck", &params, &kube::api::Patch::Merge(repaired)).await.unwrap();
    world
        .until("the machine to serve once it can be read", |scene| {
            scene.machines.get("stuck").is_some_and(mcm::api::machine::Machine::is_available)
        })
        .await;
    check(&world, &manager, &tools, &NODE_CLAIM).await;
    // A typed apply would need the stored value to be of the type.
    let repaired = kube::api::Patch::Merge(json!({"nodeTemplate": null}));
    world.class_api().patch("w-garbled", &params, &repaired).await.unwrap();
    world
        .until("the machine to serve once its class can be read", |scene| {
            scene.machines.get("w-class-unknown").is_some_and(mcm::api::machine::Machine::is_available)
        })
        .await;
}

/// The API server accepts this depth; JSON libraries do not.
#[tokio::test]
async fn a_class_that_is_nested_too_deep_holds_up_no_others_and_can_be_deleted() {
    const DEPTH: usize = 5_000;
    let world = World::new("deep").await;
    let mut class = objects::class("deep");
    class["metadata"]["namespace"] = world.namespace.clone().into();
    class["metadata"]["finalizers"] = json!([mcm::api::labels::FINALIZER]);
    class["providerSpec"] = "DEEP".into();
    let deep = format!("{}1{}", r#"{"a":"#.repeat(DEPTH), "}".repeat(DEPTH));
    let class = class.to_string().replace("\"DEEP\"", &deep);
    let path = format!("/apis/machine.sapcloud.io/v1alpha1/namespaces/{}/machineclasses", world.namespace);
    // The client of this test cannot decode it either.
    let send = async |method: &str, path: &str, body: String| {
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        world.client.request_text(request.body(body.into_bytes()).unwrap()).await
    };
    send("POST", &path, class).await.unwrap();

    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let of_class = ListParams::default().fields("involvedObject.kind=MachineClass,involvedObject.name=deep");
    wait::until("an event on the class", async || {
        let events = events.list(&of_class).await.unwrap().items;
        let is_it = |event: &Event| event.reason.as_deref() == Some("Unreadable");
        events.iter().any(is_it).then_some(())
    })
    .await;

    let class = format!("{path}/deep");
    send("DELETE", &class, String::new()).await.unwrap();
    wait::until("the class to go", async || match send("GET", &class, String::new()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Some(()),
        _ => None,
    })
    .await;
    world.remove_pool().await;
}

/// Its kubelet may write such a date, and Go reads it.
#[tokio::test]
async fn a_node_with_a_date_that_cannot_be_represented_goes_with_its_machine() {
    let world = World::new("far-date").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let name = world
        .find("a machine with a Node", |scene| scene.live().find_map(|one| one.node_name().map(str::to_owned)))
        .await;
    let condition = json!({"type": "Battery", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"});
    let patch = json!({"status": {"conditions": [condition]}}).to_string().into_bytes();
    let request = http::Request::patch(format!("/api/v1/nodes/{name}/status"))
        .header("content-type", "application/strategic-merge-patch+json");
    let stored = world.target.request_text(request.body(patch).unwrap()).await.unwrap();
    assert!(stored.contains("9999-12-31T23:59:59Z"), "{stored}");

    world.roll("large").await;
    world.settled(2, "large").await;
    wait::until("the Node to go", async || {
        let request = http::Request::get(format!("/api/v1/nodes/{name}")).body(Vec::new()).unwrap();
        match world.target.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Some(()),
            _ => None,
        }
    })
    .await;
    world.remove_pool().await;
}

/// Our CRDs without their rules, as other versions install them.
pub fn lax() -> Vec<CustomResourceDefinition> {
    let without_rules = |crd: CustomResourceDefinition| {
        let mut crd = serde_json::to_value(crd).unwrap();
        strip(&mut crd);
        serde_json::from_value(crd).unwrap()
    };
    crds().into_iter().map(without_rules).collect()
}

/// The definition of MachineClasses without a schema.
fn untyped_classes() -> Vec<CustomResourceDefinition> {
    let mut all = crds();
    all.retain(|crd| crd.spec.names.kind == "MachineClass");
    for version in all.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        version.schema = Some(serde_json::from_value(schema).unwrap());
    }
    all
}

fn strip(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Objects that such CRDs let through.
pub fn unreadable() -> Vec<Value> {
    let of_kind = |kind: &str, spec: Value| json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "metadata": {"name": "stuck"}, "spec": spec});
    let spec = json!({"class": {"kind": "MachineClass", "name": "small"}, "drainTimeout": "2 hours"});
    let mut deployment = objects::deployment("stuck", 2);
    objects::merge(&mut deployment, json!({"spec": {"template": {"spec": spec}}}));
    let set = json!({
        "replicas": 2,
        "selector": {"matchLabels": {"name": "stuck-set"}},
        "template": {"metadata": {"labels": {"name": "stuck-set"}}, "spec": spec},
    });
    vec![of_kind("Machine", spec), of_kind("MachineSet", set), deployment]
}
