//! Objects that break a rule and were stored before the rule was there stay usable: their metadata, replicas and status can
//! be written, faults can be mended one at a time, and they can be deleted. What they may not do is break another rule.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcm::api::{crd::crds, machine::GROUP};
use rstest::rstest;

use crate::{
    objects::{CLASS, DEPLOYMENT, Kind, MACHINE, SET, yaml},
    support::{
        control_plane::{ControlPlane, install},
        wait,
    },
};

#[rstest]
#[tokio::test]
async fn set_and_deployment(#[values(SET, DEPLOYMENT)] kind: Kind) {
    let faults = [
        "spec: {selector: null}",
        "spec: {template: {metadata: {labels: {pool: null}}}}",
        "spec: {template: {metadata: {labels: {pool: masters}}}}",
        "spec: {template: {metadata: {labels: {pool: true}}}}",
        "spec: {template: {metadata: {labels: {zone: 5}, annotations: [a]}}}",
        &"spec: {selector: {matchLabels: {zone: LONG}}, template: {metadata: {labels: {zone: LONG}}}}"
            .replace("LONG", &"a".repeat(64)),
        "spec: {template: {metadata: null}}",
        "spec: {template: {spec: null}}",
        "spec: {template: {spec: {class: null}}}",
        "spec: {template: {spec: {drainTimeout: 2 hours}}}",
        "spec: {template: {spec: {drainTimeout: 9999999999h}}}",
        "spec: {template: {spec: {drainTimeout: -5m, healthTimeout: -1h, creationTimeout: 0s}}}",
        "spec: {selector: {matchLabels: {other: ''}}}",
        "spec: {selector: {matchExpressions: [{key: pool, operator: Is}]}}",
        "spec: {selector: {matchExpressions: [{key: pool, operator: In}]}}",
    ];
    for object in Stored::before(kind, &faults).await {
        object.takes("spec: {minReadySeconds: 1, replicas: 7, template: {metadata: {annotations: null}}}").await;
        object.scales().await;
        object.lives_and_dies().await;
    }
}

#[tokio::test]
async fn deployment() {
    let faults = [
        "spec: {strategy: null}",
        "spec: {strategy: {type: ''}}",
        "spec: {strategy: {type: OnDelete}}",
        "spec: {strategy: {rollingUpdate: null}}",
        "spec: {strategy: {rollingUpdate: {maxSurge: some}}}",
        "spec: {strategy: {rollingUpdate: {maxSurge: 3000000000}}}",
        "spec: {strategy: {type: InPlaceUpdate, inPlaceUpdate: {maxUnavailable: -1, orchestrationType: OnDelete}}}",
        "spec: {revisionHistoryLimit: -1}",
        "spec: {template: {spec: {nodeTemplate: {metadata: {labels: {team: data platform}}}}}}",
        "spec: {template: {spec: {nodeTemplate: {spec: {taints: [{key: a b, value: a b, effect: NoSchedul}]}}}}}",
        &format!("metadata: {{name: {}}}", "a".repeat(248)),
    ];
    for object in Stored::before(DEPLOYMENT, &faults).await {
        object.takes("spec: {paused: true, template: {metadata: {labels: {new: label}}}}").await;
        object.scales().await;
        object.lives_and_dies().await;
    }
}

#[tokio::test]
async fn machine() {
    let faults = [
        "spec: {class: {name: ''}}",
        "spec: {class: null, nodeConditions: Ready}",
        "spec: {drainTimeout: 2 hours, healthTimeout: ''}",
        &format!("metadata: {{name: {}}}", "a".repeat(64)),
    ];
    for object in Stored::before(MACHINE, &faults).await {
        object.takes("spec: {providerID: 'aws:///eu/i-1', nodeTemplate: {metadata: {labels: {a: b}}}}").await;
        object.lives_and_dies().await;
    }
}

#[tokio::test]
async fn class() {
    let faults = [
        "nodeTemplate: {capacity: {cpu: 2}, instanceType: m5, region: eu, zone: eu-a}",
        "nodeTemplate: {capacity: {cpu: 2, gpu: 0, memory: 1Gi}, instanceType: '', region: '', zone: ''}",
        "nodeTemplate: {capacity: {cpu: two, gpu: 0, memory: 1Gi}, instanceType: m5, region: eu, zone: eu-a}",
    ];
    for object in Stored::before(CLASS, &faults).await {
        object.takes("{provider: AWS, nodeTemplate: {architecture: arm64, capacity: {disk: 1Gi}}}").await;
        object.lives_and_dies().await;
    }
}

#[rstest]
#[tokio::test]
async fn object_without_a_spec(#[values(MACHINE, SET, DEPLOYMENT)] kind: Kind) {
    for object in Stored::before(kind, &["spec: null"]).await {
        object.lives_and_dies().await;
    }
}

#[tokio::test]
async fn faults_can_be_mended_one_at_a_time() {
    let faults = "spec: {selector: null, strategy: null, template: {spec: {class: null, drainTimeout: 2 hours}}}";
    for object in Stored::before(DEPLOYMENT, &[faults]).await {
        object.takes("spec: {template: {spec: {drainTimeout: 2h}}}").await;
        object.takes("spec: {template: {spec: {class: {name: small}}}}").await;
        object.takes("spec: {strategy: {type: Recreate}}").await;
        object.takes("spec: {selector: {matchLabels: {pool: workers}}}").await;
        object.takes("spec: {template: {spec: {class: {kind: MachineClass}}}}").await;
        object.refuses("spec: {selector: null}", "spec.selector: Required value").await;
        object.refuses("spec: {template: {spec: {class: null}}}", "spec.class.kind: Required value").await;
    }
}

/// The controllers do nothing for a selector that cannot be read.
#[rstest]
#[tokio::test]
async fn an_invalid_selector_can_be_replaced(#[values(SET, DEPLOYMENT)] kind: Kind) {
    let faults = [
        "spec: {selector: {matchExpressions: [{key: pool, operator: Is}]}}",
        "spec: {selector: {matchExpressions: [{key: pool, operator: In}]}}",
        "spec: {selector: {matchExpressions: [{key: pool, operator: Exists, values: [a]}]}}",
    ];
    for object in Stored::before(kind, &faults).await {
        object.takes("spec: {selector: {matchLabels: {zone: a}, matchExpressions: null}}").await;
        object.refuses("spec: {selector: {matchLabels: {zone: null, pool: workers}}}", "leave it as it is").await;
    }
}

#[tokio::test]
async fn no_new_fault_comes_in() {
    let changes = [
        (
            "spec: {selector: {matchLabels: {zone: a}}, template: {metadata: {labels: {pool: null}}}}",
            "spec: {template: {metadata: {labels: {zone: b}}}}",
            "spec.selector.matchLabels: Invalid value",
        ),
        (
            "spec: {template: {metadata: {labels: {pool: null}}}}",
            "spec: {selector: {matchLabels: {other: x}}}",
            "spec.selector.matchLabels: Invalid value",
        ),
        (
            "spec: {strategy: {rollingUpdate: {maxSurge: null}}}",
            "spec: {strategy: {rollingUpdate: {maxUnavailable: null}}}",
            "spec.strategy.rollingUpdate.maxUnavailable: Required value",
        ),
        (
            "spec: {strategy: {rollingUpdate: {maxSurge: some}}}",
            "spec: {strategy: {rollingUpdate: {maxSurge: other}}}",
            "spec.strategy.rollingUpdate.maxSurge: Invalid value",
        ),
        (
            "spec: {selector: null, strategy: {type: Recreate, rollingUpdate: {maxSurge: some}}}",
            "spec: {strategy: {type: RollingUpdate}}",
            "spec.strategy.rollingUpdate.maxSurge: Invalid value",
        ),
        ("spec: {strategy: {type: OnDelete}}", "spec: {strategy: {type: Never}}", "spec.strategy.type: Invalid value"),
        (
            "spec: {template: {spec: {drainTimeout: 2 hours}}}",
            "spec: {template: {spec: {drainTimeout: 3 hours}}}",
            "spec.template.spec.drainTimeout: Invalid value",
        ),
        (
            "spec: {template: {spec: {creationTimeout: -1h}}}",
            "spec: {template: {spec: {creationTimeout: 0s}}}",
            "spec.template.spec.creationTimeout: Invalid value",
        ),
    ];
    let objects = Stored::before(DEPLOYMENT, &changes.map(|(fault, ..)| fault)).await;
    for (object, (_, change, text)) in objects.iter().zip(changes) {
        object.refuses(change, text).await;
    }
}

/// A rule fails on labels that are not a map, and the API server never accepts them again. Such an object cannot be
/// decoded by any client.
#[tokio::test]
async fn labels_that_are_not_a_map_are_corrected_together_with_other_changes() {
    for object in Stored::before(SET, &["spec: {template: {metadata: {labels: [pool]}}}"]).await {
        object.refuses("metadata: {finalizers: [example.com/hold]}", "expected a map").await;
        let mended =
            "{metadata: {finalizers: [example.com/hold]}, spec: {template: {metadata: {labels: {pool: workers}}}}}";
        object.takes(mended).await;
        object.lives_and_dies().await;
    }
}

/// An object under a copy of a CRD, in a separate group so that tests do not interfere.
struct Stored {
    kind: Kind,
    api: Api<DynamicObject>,
    name: String,
    fault: String,
}

impl Stored {
    /// Stores samples, each with a fault, under a CRD without rules, then installs ours.
    async fn before(kind: Kind, faults: &[&str]) -> Vec<Self> {
        let control_plane = ControlPlane::shared().await;
        let client = control_plane.client();
        let namespace = control_plane.namespace("stored").await;
        let group = format!("{namespace}.{GROUP}");
        let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind.name).unwrap();
        let crd = in_group(crd, &group);
        let api = kind.api(&client, &group, &namespace);

        install(&client, &[without_rules(crd.clone())]).await.unwrap();
        let mut stored = Vec::new();
        for (number, fault) in faults.iter().enumerate() {
            let object = numbered(kind.with(fault), number, &group);
            wait::until("the definition without rules", async || store(&api, &object).await).await;
            stored.push(Self { kind, api: api.clone(), name: object.name_any(), fault: fault.to_string() });
        }

        install(&client, &[crd]).await.unwrap();
        let probe = numbered(kind.with("{spec: null, providerSpec: null, nodeTemplate: {capacity: {}}}"), 0, &group);
        wait::until("the rules", async || is_refused(&api, &probe).await.then_some(())).await;
        stored
    }

    async fn takes(&self, change: &str) {
        let patch = Patch::Merge(yaml(change));
        let result = self.api.patch(&self.name, &PatchParams::default(), &patch).await;
        result.unwrap_or_else(|error| panic!("{}: {change}: {error}", self.fault));
    }

    async fn refuses(&self, change: &str, text: &str) {
        let patch = Patch::Merge(yaml(change));
        let answer = self.api.patch(&self.name, &PatchParams::default(), &patch).await;
        let error = answer.expect_err(change).to_string();
        assert!(error.contains(text), "{}: {change}: {error}", self.fault);
    }

    async fn scales(&self) {
        for replicas in [5, 0] {
            let patch = Patch::Merge(serde_json::json!({ "spec": { "replicas": replicas } }));
            self.api.patch_scale(&self.name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    /// Changes by controllers and users to any object, up to its deletion.
    async fn lives_and_dies(&self) {
        self.takes(
            "metadata: {labels: {a: b}, annotations: {c: d}, finalizers: [example.com/hold, example.com/other]}",
        )
        .await;
        let mut object = self.api.get(&self.name).await.unwrap();
        object.finalizers_mut().pop();
        self.api.replace(&self.name, &PostParams::default(), &object).await.unwrap();
        if self.kind.name != CLASS.name {
            let status = Patch::Merge(serde_json::json!({ "status": { "lastOperation": { "description": "seen" } } }));
            self.api.patch_status(&self.name, &PatchParams::default(), &status).await.unwrap();
        }
        self.api.delete(&self.name, &DeleteParams::default()).await.unwrap();
        self.takes("metadata: {finalizers: null}").await;
        assert!(self.api.get_opt(&self.name).await.unwrap().is_none(), "{}: deleted, and nothing holds it", self.fault);
    }
}

fn numbered(mut object: DynamicObject, number: usize, group: &str) -> DynamicObject {
    if object.name_any() == "sample" {
        object.metadata.name = Some(format!("sample-{number}"));
    }
    if let Some(types) = &mut object.types {
        types.api_version = format!("{group}/v1alpha1");
    }
    object
}

async fn store(api: &Api<DynamicObject>, object: &DynamicObject) -> Option<()> {
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Some(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => None,
        Err(error) => panic!("not stored without rules either: {error}"),
    }
}

async fn is_refused(api: &Api<DynamicObject>, object: &DynamicObject) -> bool {
    let name = Some("probe".to_owned());
    let probe = DynamicObject { metadata: ObjectMeta { name, ..ObjectMeta::default() }, ..object.clone() };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    matches!(api.create(&dry_run, &probe).await, Err(kube::Error::Api(status)) if status.is_invalid())
}

fn in_group(mut crd: CustomResourceDefinition, group: &str) -> CustomResourceDefinition {
    crd.metadata.name = Some(format!("{}.{group}", crd.spec.names.plural));
    crd.spec.group = group.to_owned();
    crd
}

/// Types and required fields only, as in the CRDs of the reference.
fn without_rules(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()).for_each(drop_rules);
    crd
}

fn drop_rules(schema: &mut JSONSchemaProps) {
    schema.x_kubernetes_validations = None;
    schema.pattern = None;
    schema.enum_ = None;
    schema.minimum = None;
    schema.maximum = None;
    schema.max_length = None;
    schema.max_items = None;
    schema.max_properties = None;
    if schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        schema.properties = None;
    }
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(drop_rules);
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        drop_rules(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_rules(items);
    }
}
