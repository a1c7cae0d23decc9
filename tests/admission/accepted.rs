//! Objects that the reference would act on are accepted, and stored unchanged.

use kube::api::PostParams;
use mcm::api::machine::GROUP;
use rstest::rstest;

use crate::{
    objects::{CLASS, DEPLOYMENT, IN_PLACE, Kind, MACHINE, SET},
    support::control_plane::ControlPlane,
};

#[rstest]
#[case::as_it_stands("{}")]
#[case::no_replicas("spec: {replicas: null}")]
#[case::selects_everything("spec: {selector: {matchLabels: null}, template: {metadata: null}}")]
#[case::selector_without_labels("spec: {selector: {matchLabels: {pool: null}}, template: {metadata: null}}")]
#[case::selects_by_expressions_only(
    "spec: {selector: {matchLabels: null, matchExpressions: [{key: other, operator: NotIn, values: [a]}, {key: b, operator: Exists}]}}"
)]
#[case::empty_label("spec: {selector: {matchLabels: {empty: ''}}, template: {metadata: {labels: {empty: ''}}}}")]
#[case::many_labels_selected("spec: {selector: {matchLabels: {pool: workers, zone: a}}}")]
#[case::class_kind_of_old("spec: {template: {spec: {class: {apiGroup: machine.sapcloud.io, kind: AWSMachineClass}}}}")]
#[case::numbers_that_are_not_read("spec: {minReadySeconds: 500, autoPreserveFailedMachineMax: -1}")]
#[case::null_where_go_writes_it(
    "spec: {template: {metadata: {creationTimestamp: null}, spec: {nodeTemplate: {metadata: {creationTimestamp: null}, spec: {}}}}}"
)]
#[tokio::test]
async fn set_and_deployment(#[values(SET, DEPLOYMENT)] kind: Kind, #[case] change: &str) {
    accepted(kind, change).await;
}

#[rstest]
#[case::recreate("spec: {strategy: {type: Recreate, rollingUpdate: null}}")]
#[case::block_that_is_not_read(
    "spec: {strategy: {type: Recreate, rollingUpdate: {maxSurge: some, maxUnavailable: -1}}}"
)]
#[case::other_block_that_is_not_read("spec: {strategy: {inPlaceUpdate: {maxSurge: '7', orchestrationType: Never}}}")]
#[case::paused_and_to_be_rolled_back("spec: {paused: true, rollbackTo: {}, revisionHistoryLimit: 0}")]
#[case::deadline_in_the_past("spec: {progressDeadlineSeconds: -1, rollbackTo: {revision: -1}}")]
#[case::longest_name("metadata: {name: LONGEST}")]
#[tokio::test]
async fn deployment(#[case] change: &str) {
    accepted(DEPLOYMENT, &change.replace("LONGEST", &"a".repeat(247))).await;
}

#[rstest]
#[case::numbers("{maxSurge: 0, maxUnavailable: 2147483647}")]
#[case::both_zero("{maxSurge: 0, maxUnavailable: 0}")]
#[case::percentages("{maxSurge: 20%, maxUnavailable: 0%}")]
#[case::beyond_all_machines("{maxSurge: 250%, maxUnavailable: 100%}")]
#[case::sign_and_zeros("{maxSurge: +5%, maxUnavailable: 007%}")]
#[tokio::test]
async fn bounds_of_a_rollout(
    #[values((DEPLOYMENT, "rollingUpdate"), (IN_PLACE, "inPlaceUpdate"))] (kind, block): (Kind, &str),
    #[case] bounds: &str,
) {
    accepted(kind, &format!("spec: {{strategy: {{{block}: {bounds}}}}}")).await;
}

#[tokio::test]
async fn nodes_selected_by_a_user() {
    accepted(IN_PLACE, "spec: {strategy: {inPlaceUpdate: {orchestrationType: Manual}}}").await;
}

/// Every spelling that Go reads.
#[rstest]
#[case::zero(&["0", "0s", "+0"])]
#[case::common(&["2h", "2h0m0s", "90s", "1h1h"])]
#[case::fractions(&["1.5h", ".5h", "1.h"])]
#[case::signs(&["+20m", "-1m"])]
#[case::short_units(&["300ms", "7us", "7\u{b5}s", "7\u{3bc}s", "9ns"])]
#[tokio::test]
async fn duration(#[case] spellings: &[&str]) {
    for written in spellings {
        let fields =
            "drainTimeout: D, healthTimeout: D, creationTimeout: D, inPlaceUpdateTimeout: D, machinePreserveTimeout: D";
        accepted(MACHINE, &format!("spec: {{{}}}", fields.replace('D', &format!("'{written}'")))).await;
    }
}

/// The longest duration that Go reads, and durations that force a drain at once.
#[rstest]
#[tokio::test]
async fn duration_of_a_deployment(
    #[values(
        "drainTimeout: 0s",
        "healthTimeout: '0'",
        "creationTimeout: 1ns",
        "creationTimeout: 2562047h",
        "creationTimeout: 2562047h47m16s",
        "machinePreserveTimeout: 999999h59m59.999999999s"
    )]
    field: &str,
) {
    accepted(DEPLOYMENT, &format!("spec: {{template: {{spec: {{{field}}}}}}}")).await;
}

#[rstest]
#[case::as_it_stands("{}")]
#[case::fully_configured(
    "spec: {providerID: 'aws:///eu/i-1', disableHealthTimeout: false, maxEvictRetries: -1, nodeConditions: 'Ready,DiskPressure',
      nodeTemplate: {metadata: {labels: {a: b}, annotations: {c: d}, generateName: x}, spec: {taints: [{key: k, effect: NoSchedule}], podCIDRs: [10.0.0.0/24]}}}"
)]
#[case::name_shorter_than_a_token_id("metadata: {name: m}")]
#[tokio::test]
async fn machine(#[case] change: &str) {
    accepted(MACHINE, change).await;
}

#[rstest]
#[case::as_it_stands("{}")]
#[case::empty("providerSpec: {flavour: null}")]
#[case::complete(
    "{provider: AWS, secretRef: {name: s, namespace: n}, credentialsSecretRef: {name: c, namespace: n}, \
      nodeTemplate: {architecture: arm64, capacity: {cpu: 2, gpu: '0', memory: 8Gi, storage: '1e3'}, virtualCapacity: {example.com/x: 1500m}, \
        instanceType: m5, region: eu, zone: eu-a, unknown: {nested: [1, null]}}}"
)]
#[tokio::test]
async fn class(#[case] change: &str) {
    accepted(CLASS, change).await;
}

/// The object is stored as it was sent, including fields that the schema does not have.
async fn accepted(kind: Kind, change: &str) {
    let object = kind.with(change);
    let client = ControlPlane::shared().await.client();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let stored = kind.api(&client, GROUP, "default").create(&dry_run, &object).await.unwrap();
    assert_eq!(stored.data, object.data);
}
