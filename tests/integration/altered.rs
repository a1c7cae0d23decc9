//! Mutating admission policies that change what the controllers write.

use kube::api::{DeleteParams, DynamicObject, PostParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{
    objects::{self, api_of},
    scene::Scene,
    wait,
    world::World,
};

/// A policy for one kind in the namespace of a world.
struct Policy {
    name: String,
    objects: [Value; 2],
}

impl Policy {
    fn new(world: &World, resource: &str, operations: &[&str], expression: &str) -> Self {
        let name = format!("alters-{}", world.namespace);
        let rule = json!({
            "apiGroups": ["machine.sapcloud.io"], "apiVersions": ["v1alpha1"],
            "operations": operations, "resources": [resource],
        });
        let only = json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace}});
        let (api, meta) = ("admissionregistration.k8s.io/v1", json!({"name": name}));
        let policy = json!({
            "apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": meta,
            "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only},
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
            },
        });
        let binding = json!({
            "apiVersion": api, "kind": "MutatingAdmissionPolicyBinding", "metadata": meta, "spec": {"policyName": name},
        });
        Self { name, objects: [policy, binding] }
    }

    /// Creates it, and waits until it changes a `probe` that is not stored.
    async fn enforce(&self, world: &World, probe: Value) {
        for object in &self.objects {
            objects::apply(&world.client, object).await;
        }
        self.until(world, probe, true).await;
    }

    async fn end(&self, world: &World, probe: Value) {
        for object in &self.objects {
            api_of(&world.client, object).delete(&self.name, &DeleteParams::default()).await.unwrap();
        }
        self.until(world, probe, false).await;
    }

    async fn until(&self, world: &World, mut probe: Value, changes: bool) {
        probe["metadata"]["namespace"] = world.namespace.as_str().into();
        let api = api_of(&world.client, &probe);
        let sent: DynamicObject = serde_json::from_value(probe).unwrap();
        let how = PostParams { dry_run: true, ..PostParams::default() };
        wait::until("the policy to be in force, or gone", async || {
            let stored = api.create(&how, &sent).await.unwrap();
            let is_same = stored.data["spec"] == sent.data["spec"] && stored.metadata.labels == sent.metadata.labels;
            (is_same != changes).then_some(())
        })
        .await;
    }
}

fn set() -> Value {
    let mut set = objects::deployment("probe", 0);
    set["kind"] = "MachineSet".into();
    set["spec"].as_object_mut().unwrap().remove("strategy");
    set
}

fn condition<'a>(scene: &'a Scene, type_: &str) -> Option<&'a str> {
    let of_sets = scene.sets.values().flat_map(|set| set.status.iter().flat_map(|status| &status.conditions));
    of_sets.into_iter().find(|condition| condition.type_ == type_).map(|condition| condition.message.as_str())
}

fn of_deployment<'a>(scene: &'a Scene, type_: &str) -> Option<&'a str> {
    let status = scene.deployments.get("pool")?.status.as_ref()?;
    status.conditions.iter().find(|condition| condition.type_ == type_).map(|condition| condition.message.as_str())
}

#[tokio::test]
async fn machines_that_a_policy_takes_from_their_set_are_not_made_again() {
    let world = World::new("label-drift").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let label = r#"Object{metadata: Object.metadata{labels: Object.metadata.labels{name: "platform"}}}"#;
    let policy = Policy::new(&world, "machines", &["CREATE"], label);
    policy.enforce(&world, objects::machine("probe")).await;
    world.scene.always("four machines at most", |scene| scene.machines.len() <= 4);
    world.change(json!({"spec": {"replicas": 3}})).await;
    world
        .until("the condition, and no machine beside those of the set", |scene| {
            let is_shown = condition(scene, "ReplicaFailure").is_some_and(|text| text.contains(r#""platform""#));
            is_shown && scene.machines.len() == 2 && scene.ever.len() == 3
        })
        .await;
    policy.end(&world, objects::machine("probe")).await;
    world.settled(3, "small").await;
    world.until("no condition", |scene| condition(scene, "ReplicaFailure").is_none()).await;
    assert!(world.scene.now().ever.len() <= 5, "{:?}", world.scene.now().ever);
    world.assert_vms_match().await;
}

#[rstest]
#[case::at_creation("set-template", &["CREATE"])]
#[case::at_each_write("set-writes", &["CREATE", "UPDATE"])]
#[tokio::test]
async fn a_set_that_a_policy_gives_another_template_is_the_current_one(
    #[case] name: &str,
    #[case] operations: &[&str],
) {
    let world = World::new(name).await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let label = "Object{spec: Object.spec{template: Object.spec.template{metadata: \
                 Object.spec.template.metadata{labels: Object.spec.template.metadata.labels{costcenter: \"4711\"}}}}}";
    let policy = Policy::new(&world, "machinesets", operations, label);
    policy.enforce(&world, set()).await;
    world
        .scene
        .always("two sets and four machines at most", |scene| scene.sets.len() <= 2 && scene.machines.len() <= 4);
    world.roll("large").await;
    world.settled(2, "large").await;
    if operations.len() > 1 {
        world
            .until("the condition", |scene| {
                of_deployment(scene, "InSync").is_some_and(|text| text.contains("costcenter"))
            })
            .await;
    }
    policy.end(&world, set()).await;
    world
        .until("a set as it was sent", |scene| {
            // The template of an old set is history.
            let mut current = scene.sets.values().filter(|set| set.spec.replicas > 0);
            current.all(|set| !set.spec.template.metadata.labels.contains_key("costcenter"))
                && of_deployment(scene, "InSync").is_none()
        })
        .await;
    world.settled(2, "large").await;
    assert_eq!(world.scene.now().ever.len(), 4, "no other rollout follows");
}

#[tokio::test]
async fn a_field_that_a_policy_sets_on_machines_is_not_written_again_and_again() {
    let world = World::new("drain-timeout").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({"spec": {"template": {"spec": {"drainTimeout": "2h0m0s"}}}})).await;
    world.settled(2, "small").await;
    let field = r#"Object{spec: Object.spec{drainTimeout: "10m0s"}}"#;
    let policy = Policy::new(&world, "machines", &["CREATE", "UPDATE"], field);
    policy.enforce(&world, objects::machine("probe")).await;
    world.scene.always("few writes", |scene| {
        let generations = scene.machines.values().filter_map(|machine| machine.metadata.generation);
        generations.sum::<i64>() < 40
    });
    world.change(json!({"spec": {"replicas": 3}})).await;
    world
        .until("the condition", |scene| {
            condition(scene, "InSync").is_some_and(|text| text.contains("spec.drainTimeout"))
        })
        .await;
    world.settled(3, "small").await;
    policy.end(&world, objects::machine("probe")).await;
    world.until("no condition", |scene| condition(scene, "InSync").is_none()).await;
    world
        .until("the timeout of the template", |scene| {
            scene.machines.values().all(|machine| json!(machine)["spec"]["drainTimeout"] == "2h0m0s")
        })
        .await;
}
