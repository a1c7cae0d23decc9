//! Objects that the reference would store and then ignore, stall on or crash on are refused, with a text that contains
//! the remedy.

use kube::{
    api::{DynamicObject, PostParams},
    core::Status,
};
use mcm::api::machine::GROUP;
use rstest::rstest;

use crate::{
    objects::{CLASS, DEPLOYMENT, IN_PLACE, Kind, MACHINE, SET},
    support::control_plane::ControlPlane,
};

const BOUND: &str = "write a number of machines such as 1, or a percentage such as 20%";
const SELECTS: &str =
    "spec.selector.matchLabels: Invalid value: write the same labels in template.metadata.labels, or fewer here";
const SELECTION: &str = "write Auto to let the controller select the nodes, or Manual to select them with a label";

/// The addition of the API server when a field is missing or of the wrong type.
const UNCHECKED: &str = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
    correct the existing errors to complete validation";

#[rstest]
#[case::label_value(
    "metadata: {labels: {team: data platform}}",
    "metadata.labels.team: Invalid value: \"data platform\""
)]
#[case::taint_key("spec: {taints: [{key: a b, effect: NoSchedule}]}", "spec.taints[0].key: Invalid value: \"a b\"")]
#[case::taint_value(
    "spec: {taints: [{key: a, value: a b, effect: NoSchedule}]}",
    "spec.taints[0].value: Invalid value: \"a b\""
)]
#[case::taint_effect(
    "spec: {taints: [{key: a, effect: NoSchedul}]}",
    "spec.taints[0].effect: Unsupported value: \"NoSchedul\""
)]
#[tokio::test]
async fn node_template_of_a_deployment(#[case] change: &str, #[case] text: &str) {
    let change = format!("spec: {{template: {{spec: {{nodeTemplate: {{{change}}}}}}}}}");
    let refusal = answer(DEPLOYMENT, &DEPLOYMENT.with(&change)).await.message;
    assert!(refusal.contains(&format!("spec.template.spec.nodeTemplate.{text}")), "{refusal}");
}

#[rstest]
#[case::negative_replicas(
    "spec: {replicas: -1}",
    ".spec.replicas: Invalid value: -1: should be a non-negative integer"
)]
#[case::no_selector(
    "spec: {selector: null}",
    "spec.selector: Required value: write matchLabels with labels that are also in template.metadata.labels"
)]
#[case::selected_label_missing("spec: {template: {metadata: {labels: {pool: null}}}}", SELECTS)]
#[case::selected_label_differs("spec: {template: {metadata: {labels: {pool: masters}}}}", SELECTS)]
#[case::no_labels_at_all("spec: {template: {metadata: null}}", SELECTS)]
#[case::empty_value_for_a_missing_label("spec: {selector: {matchLabels: {other: ''}}}", SELECTS)]
#[case::unknown_operator(
    "spec: {selector: {matchExpressions: [{key: pool, operator: Is, values: [workers]}]}}",
    "spec.selector.matchExpressions[0].operator: Invalid value: \"Is\": write In, NotIn, Exists or DoesNotExist"
)]
#[case::operator_without_its_values(
    "spec: {selector: {matchExpressions: [{key: pool, operator: In}]}}",
    "spec.selector.matchExpressions[0].values: Invalid value: write values for In and NotIn, and none for Exists and DoesNotExist"
)]
#[case::operator_with_values_too_many(
    "spec: {selector: {matchExpressions: [{key: pool, operator: Exists, values: [workers]}]}}",
    "spec.selector.matchExpressions[0].values: Invalid value: write values for In and NotIn, and none for Exists and DoesNotExist"
)]
#[case::no_kind_of_class(
    "spec: {template: {spec: {class: {kind: ''}}}}",
    "spec.template.spec.class.kind: Required value: write the kind of the class, which is MachineClass"
)]
#[case::no_name_of_class(
    "spec: {template: {spec: {class: {name: null}}}}",
    "spec.template.spec.class.name: Required value: write the name of the MachineClass that describes the VM"
)]
#[case::no_template_spec(
    "spec: {template: {spec: null}}",
    "spec.template.spec: Required value: write a spec whose class names a MachineClass"
)]
#[case::duration_in_words(
    "spec: {template: {spec: {drainTimeout: 2 hours}}}",
    "spec.template.spec.drainTimeout: Invalid value: \"2 hours\": write numbers with units, such as 20m, 1h30m or 90s"
)]
#[case::label_that_is_no_text(
    "spec: {template: {metadata: {labels: {zone: 5}}}}",
    "[spec.template.metadata.labels.zone: Invalid value: \"integer\": spec.template.metadata.labels.zone in body must be of \
     type string: \"integer\", UNCHECKED]"
)]
#[case::selected_label_that_is_no_text(
    "spec: {template: {metadata: {labels: {pool: true}}}}",
    "[spec.template.metadata.labels.pool: Invalid value: \"boolean\": spec.template.metadata.labels.pool in body must be of \
     type string: \"boolean\", UNCHECKED]"
)]
#[case::no_spec("spec: null", "spec: Required value: write a spec")]
#[tokio::test]
async fn set_and_deployment(#[values(SET, DEPLOYMENT)] kind: Kind, #[case] change: &str, #[case] text: &str) {
    refused(kind, change, text).await;
}

#[rstest]
#[case::no_template("spec: {template: null}", "[spec.template: Required value, UNCHECKED]")]
#[case::no_strategy(
    "spec: {strategy: null}",
    "spec.strategy.type: Required value: write RollingUpdate, Recreate or InPlaceUpdate"
)]
#[case::unknown_strategy(
    "spec: {strategy: {type: OnDelete}}",
    "spec.strategy.type: Invalid value: \"OnDelete\": write RollingUpdate, Recreate or InPlaceUpdate"
)]
#[case::surge_beyond_what_the_type_holds(
    "spec: {strategy: {rollingUpdate: {maxSurge: 3000000000}}}",
    "spec.strategy.rollingUpdate.maxSurge: Invalid value: 3000000000: spec.strategy.rollingUpdate.maxSurge in body should be \
     less than or equal to 2147483647"
)]
#[case::negative_revision_history_limit(
    "spec: {revisionHistoryLimit: -1}",
    "spec.revisionHistoryLimit: Invalid value: -1: spec.revisionHistoryLimit in body should be greater than or equal to 0"
)]
#[tokio::test]
async fn deployment(#[case] change: &str, #[case] text: &str) {
    refused(DEPLOYMENT, change, text).await;
}

#[rstest]
#[case::no_surge("{maxSurge: null}", "maxSurge: Required value")]
#[case::no_unavailable("{maxUnavailable: null}", "maxUnavailable: Required value")]
#[case::text_without_percent("{maxSurge: '50'}", "maxSurge: Invalid value")]
#[case::text_that_is_no_number("{maxUnavailable: some%}", "maxUnavailable: Invalid value")]
#[case::fraction_of_a_percent("{maxUnavailable: 2.5%}", "maxUnavailable: Invalid value")]
#[case::percentage_that_does_not_fit("{maxSurge: 10000000000%}", "maxSurge: Invalid value")]
#[case::negative_number("{maxSurge: -1}", "maxSurge: Invalid value")]
#[case::negative_percentage("{maxSurge: -5%}", "maxSurge: Invalid value")]
#[tokio::test]
async fn bounds_of_a_rollout(
    #[values((DEPLOYMENT, "rollingUpdate"), (IN_PLACE, "inPlaceUpdate"))] (kind, block): (Kind, &str),
    #[case] bounds: &str,
    #[case] problem: &str,
) {
    let change = format!("spec: {{strategy: {{{block}: {bounds}}}}}");
    refused(kind, &change, &format!("spec.strategy.{block}.{problem}: {BOUND}")).await;
}

#[rstest]
#[case::nobody_selects("{orchestrationType: null}", "Required value")]
#[case::unknown_selection("{orchestrationType: OnDelete}", "Invalid value")]
#[tokio::test]
async fn in_place_update(#[case] block: &str, #[case] problem: &str) {
    let change = format!("spec: {{strategy: {{inPlaceUpdate: {block}}}}}");
    refused(IN_PLACE, &change, &format!("spec.strategy.inPlaceUpdate.orchestrationType: {problem}: {SELECTION}")).await;
}

/// Go cannot decode an object with such a number, and stalls. API servers of 1.36 and later report it twice.
#[rstest]
#[tokio::test]
async fn number_beyond_what_its_type_holds(#[values("2147483648", "-2147483649")] number: &str) {
    let object = DEPLOYMENT.with(&format!("spec: {{minReadySeconds: {number}}}"));
    let said = answer(DEPLOYMENT, &object).await.message;
    assert!(said.contains(&format!("spec.minReadySeconds: Invalid value: {number}: ")), "{said}");
}

#[tokio::test]
async fn deployment_whose_sets_would_have_too_long_names() {
    let name = "a".repeat(248);
    let text = "[metadata.name: Too long: may not be more than 247 bytes, UNCHECKED]";
    refused(DEPLOYMENT, &format!("metadata: {{name: {name}}}"), text).await;
}

#[tokio::test]
async fn machine_whose_name_is_no_label_value() {
    let text = "[metadata.name: Too long: may not be more than 63 bytes, UNCHECKED]";
    refused(MACHINE, &format!("metadata: {{name: {}}}", "a".repeat(64)), text).await;
}

#[rstest]
#[case::no_class(
    "spec: {class: null}",
    "[spec.class.kind: Required value: write the kind of the class, which is MachineClass, \
     spec.class.name: Required value: write the name of the MachineClass that describes the VM]"
)]
#[case::no_kind_of_class(
    "spec: {class: {kind: null}}",
    "spec.class.kind: Required value: write the kind of the class, which is MachineClass"
)]
#[case::no_name_of_class(
    "spec: {class: {name: ''}}",
    "spec.class.name: Required value: write the name of the MachineClass that describes the VM"
)]
#[case::no_spec("spec: null", "spec: Required value: write a spec")]
#[tokio::test]
async fn machine(#[case] change: &str, #[case] text: &str) {
    refused(MACHINE, change, text).await;
}

#[rstest]
#[tokio::test]
async fn duration(
    #[values("drainTimeout", "healthTimeout", "creationTimeout", "inPlaceUpdateTimeout", "machinePreserveTimeout")]
    field: &str,
    #[values("", "10", "1h 30m", "2 hours", "1d", "00", "1h0", "h", ".s", "1.2.3s", "--1s", "1h\\n")] written: &str,
) {
    let change = format!("spec: {{{field}: \"{written}\"}}");
    let text =
        format!("spec.{field}: Invalid value: \"{written}\": write numbers with units, such as 20m, 1h30m or 90s");
    refused(MACHINE, &change, &text).await;
}

/// Go's clients stop at an object with such a duration.
#[rstest]
#[tokio::test]
async fn duration_that_no_client_can_read(
    #[values(MACHINE, SET, DEPLOYMENT)] kind: Kind,
    #[values("9999999999h", "2562048h", "1000000h1000000h1000000h", "153722868m", "9223372036854775808ns")]
    written: &str,
) {
    let field = format!("{{drainTimeout: {written}}}");
    let (path, change) = match kind.name {
        "Machine" => ("spec.drainTimeout", format!("spec: {field}")),
        _ => ("spec.template.spec.drainTimeout", format!("spec: {{template: {{spec: {field}}}}}")),
    };
    let text = "write at most 2562047h, which is the longest duration that clients can read, in at most 64 characters";
    refused(kind, &change, &format!("{path}: Invalid value: \"{written}\": {text}")).await;
}

#[rstest]
#[tokio::test]
async fn negative_duration(
    #[values("drainTimeout", "healthTimeout", "creationTimeout", "inPlaceUpdateTimeout", "machinePreserveTimeout")]
    field: &str,
) {
    let change = format!("spec: {{template: {{spec: {{{field}: -5m}}}}}}");
    let text = format!("spec.template.spec.{field}: Invalid value: \"-5m\": write a duration that is not negative");
    refused(DEPLOYMENT, &change, &text).await;
}

#[rstest]
#[tokio::test]
async fn no_time_to_create_a_machine(#[values("0", "0s", "0h0m", "+0.0s")] written: &str) {
    let change = format!("spec: {{template: {{spec: {{creationTimeout: '{written}'}}}}}}");
    let text = format!("spec.template.spec.creationTimeout: Invalid value: \"{written}\": write a duration above zero");
    refused(DEPLOYMENT, &change, &text).await;
}

#[rstest]
#[case::nothing_for_the_provider("providerSpec: null", "[providerSpec: Required value, UNCHECKED]")]
#[case::resources_missing(
    "nodeTemplate: {capacity: {cpu: 2}, instanceType: m5, region: eu, zone: eu-a}",
    "nodeTemplate.capacity: Required value: write cpu, gpu and memory, with 0 for what the VM does not have"
)]
#[case::zone_missing(
    "nodeTemplate: {capacity: {cpu: 2, gpu: 0, memory: 8Gi}, instanceType: m5, region: eu}",
    "[nodeTemplate.zone: Required value, UNCHECKED]"
)]
#[case::region_empty(
    "nodeTemplate: {capacity: {cpu: 2, gpu: 0, memory: 8Gi}, instanceType: m5, region: '', zone: eu-a}",
    "nodeTemplate.region: Invalid value: \"\": write what the provider calls it"
)]
#[case::no_quantity(
    "nodeTemplate: {capacity: {cpu: two, gpu: 0, memory: 8Gi}, instanceType: m5, region: eu, zone: eu-a}",
    r#"nodeTemplate.capacity.cpu: Invalid value: "two": nodeTemplate.capacity.cpu in body should match '^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'"#
)]
#[tokio::test]
async fn class(#[case] change: &str, #[case] text: &str) {
    refused(CLASS, change, text).await;
}

/// The whole text is compared, since the user reads all of it.
async fn refused(kind: Kind, change: &str, text: &str) {
    let object = kind.with(change);
    let text = text.replace("UNCHECKED", UNCHECKED);
    let status = answer(kind, &object).await;
    let name = object.metadata.name.unwrap();
    let said = format!("{}.{GROUP} \"{name}\" is invalid: {text}", kind.name);
    assert!(status.message == said || status.message == before_1_36(&said), "{}\nis not\n{said}", status.message);
    assert_eq!(status.code, 422);
}

async fn answer(kind: Kind, object: &DynamicObject) -> Status {
    let client = ControlPlane::shared().await.client();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    match kind.api(&client, GROUP, "default").create(&dry_run, object).await {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("stored, or no answer: {other:?}"),
    }
}

/// Older API servers name the type of a value that breaks one of our rules, where newer ones quote it or omit it.
fn before_1_36(said: &str) -> String {
    let said = said.replace("Invalid value: write", "Invalid value: \"object\": write");
    let quoted = said.split_once("\": write").and_then(|(before, after)| {
        let (before, value) = before.rsplit_once("Invalid value: \"")?;
        (value != "object").then(|| format!("{before}Invalid value: \"string\": write{after}"))
    });
    quoted.unwrap_or(said)
}
