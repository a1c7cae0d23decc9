//! Findings of the driver about a class, from a fake Compute API.

use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, fake::Fault, spec, spec_with};
use mcm_driver::{
    Code,
    inspection::{ResourceFinding, ResourcePresence},
    interface::Driver,
    testing::profile::CloudProfile,
};

async fn world() -> World {
    let world = World::new().await;
    world.gce.lock().furnish();
    world
}

async fn inspect(world: &World, spec: Value) -> Vec<ResourceFinding> {
    world.driver.inspect(&class(spec), &world.secret()).await.unwrap()
}

/// A class that needs something of each kind.
fn much() -> Value {
    spec_with(&World::needs())
}

const ZONE: &str = "my-project/zones/europe-west1-b";
const SUBNETWORK: &str = "my-project/regions/europe-west1/subnetworks/nodes";

/// Each case replaces an object of the cloud.
#[rstest]
#[case::zone_of_another_region(
    ZONE,
    json!({"kind": "compute#zone", "status": "UP", "region": "regions/us-east1"}),
    "providerSpec.zone",
    "zone europe-west1-b is in region us-east1"
)]
#[case::zone_that_is_down(
    ZONE,
    json!({"kind": "compute#zone", "status": "DOWN", "region": "regions/europe-west1"}),
    "providerSpec.zone",
    "zone europe-west1-b is DOWN"
)]
#[case::old_machine_type(
    "my-project/zones/europe-west1-b/machineTypes/n2-standard-2",
    json!({"kind": "compute#machineType", "guestCpus": 2, "memoryMb": 1, "deprecated": {"state": "OBSOLETE"}}),
    "providerSpec.machineType",
    "n2-standard-2 is OBSOLETE"
)]
#[case::image_in_the_making(
    "os/global/images/os-1",
    json!({"kind": "compute#image", "name": "os-1", "status": "PENDING"}),
    "providerSpec.disks[0].image",
    "image os-1 is PENDING"
)]
#[case::subnetwork_of_another_network(
    SUBNETWORK,
    json!({"kind": "compute#subnetwork", "network": "networks/other"}),
    "providerSpec.networkInterfaces[0].subnetwork",
    "subnetwork nodes is of network other"
)]
#[case::range(
    SUBNETWORK,
    json!({"kind": "compute#subnetwork", "network": "networks/vpc"}),
    "providerSpec.networkInterfaces[0].subnetwork",
    "subnetwork nodes has no range pods"
)]
#[case::default_service_account(
    "my-project",
    json!({"kind": "compute#project"}),
    "providerSpec.serviceAccounts[1].email",
    "the project has no default service account"
)]
#[tokio::test]
async fn a_resource_that_does_not_fit_is_named_and_nothing_else(
    #[case] thing: &str,
    #[case] instead: Value,
    #[case] path: &str,
    #[case] text: &str,
) {
    let world = world().await;
    world.gce.lock().things.insert(thing.to_owned(), instead);
    let mut findings = inspect(&world, much()).await;
    findings.retain(|finding| finding.presence != ResourcePresence::Present);
    assert_eq!(findings, [ResourceFinding::missing(path, text)]);
}

/// The network of a Shared VPC is in the project of its host.
#[tokio::test]
async fn a_network_of_a_shared_vpc_is_looked_for_in_its_project() {
    let world = world().await;
    for thing in ["my-project/global/networks/vpc", SUBNETWORK] {
        let mut gce = world.gce.lock();
        let moved = gce.things.remove(thing).unwrap();
        gce.things.insert(thing.replacen("my-project", "host", 1), moved);
    }
    let mut spec = much();
    spec["networkInterfaces"][0]["network"] = json!("projects/host/global/networks/vpc");
    spec["networkInterfaces"][0]["subnetwork"] = json!("projects/host/regions/europe-west1/subnetworks/nodes");
    let findings = inspect(&world, spec).await;
    assert!(findings.iter().all(|finding| finding.presence == ResourcePresence::Present), "{findings:#?}");
}

#[tokio::test]
async fn a_quota_without_room_is_named() {
    let world = world().await;
    let quotas = json!([{"metric": "N2_CPUS", "usage": 23.0, "limit": 24.0}]);
    let region = json!({"kind": "compute#region", "quotas": quotas});
    world.gce.lock().things.insert("my-project/regions/europe-west1".to_owned(), region);
    let mut findings = inspect(&world, spec()).await;
    findings.retain(|finding| finding.presence != ResourcePresence::Present);
    let text = "quota N2_CPUS: 23 of 24 used, a VM takes 2";
    assert_eq!(findings, [ResourceFinding::missing("providerSpec.machineType", text)]);
}

#[rstest]
#[case::project("projects.get", Fault::Error("forbidden", 403), "Secret", ResourcePresence::Unknown)]
#[case::away("machineTypes.get", Fault::Status(503), "providerSpec.machineType", ResourcePresence::Unknown)]
#[case::no_json("images.get", Fault::Malformed, "providerSpec.disks[0].image", ResourcePresence::Unknown)]
#[case::of_a_proxy("zones.get", Fault::Foreign, "providerSpec.zone", ResourcePresence::Unknown)]
#[case::not_found_by_a_proxy("zones.get", Fault::Status(404), "providerSpec.zone", ResourcePresence::Unknown)]
#[case::account(
    "account",
    Fault::Error("PERMISSION_DENIED", 403),
    "providerSpec.serviceAccounts[0].email",
    ResourcePresence::Unknown
)]
#[tokio::test]
async fn a_call_that_fails_says_that_something_is_missing_only_if_that_is_certain(
    #[case] call: &'static str,
    #[case] fault: Fault,
    #[case] path: &str,
    #[case] presence: ResourcePresence,
) {
    let world = world().await;
    world.gce.lock().faults = vec![(call, fault, 99)];
    let mut findings = inspect(&world, much()).await;
    findings.retain(|finding| finding.path == path && !finding.text.starts_with("quota"));
    assert_eq!(findings.iter().map(|finding| finding.presence).collect::<Vec<_>>(), [presence], "{findings:?}");
    assert!(!findings[0].text.contains("hunter2") && !findings[0].text.contains("ya29"));
}

#[rstest]
#[case::credentials("token", Fault::Error("invalid_grant", 400), Some(Code::Unauthenticated), 1)]
#[case::project("projects.get", Fault::Error("notFound", 404), None, 2)]
#[tokio::test]
async fn without_credentials_or_a_project_nothing_else_is_asked(
    #[case] call: &'static str,
    #[case] fault: Fault,
    #[case] code: Option<Code>,
    #[case] requests: usize,
) {
    let world = world().await;
    world.gce.lock().faults = vec![(call, fault, 99)];
    let findings = inspect(&world, spec()).await;
    let only: Vec<_> = findings.iter().map(|finding| (finding.path.as_str(), finding.presence)).collect();
    assert_eq!(only, [("Secret", ResourcePresence::Missing)]);
    let start = code.map_or("there is no project my-project", Code::as_str);
    assert!(findings[0].text.starts_with(start), "{findings:?}");
    assert_eq!(world.gce.lock().sent.len(), requests);
}

#[tokio::test]
async fn a_secret_without_user_data_is_named() {
    let world = world().await;
    let mut secret = world.secret();
    secret.0.remove("userData");
    let mut findings = world.driver.inspect(&class(spec()), &secret).await.unwrap();
    findings.retain(|one| one.presence == ResourcePresence::Missing);
    assert_eq!(findings.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), ["Secret"], "{findings:?}");
}

#[tokio::test]
async fn no_token_of_a_private_cloud_goes_to_google() {
    let world = world().await;
    let mut secret = world.secret();
    secret.0.insert("endpointURL".to_owned(), format!("{}/compute/v1", world.url).into_bytes());
    let mut findings = world.driver.inspect(&class(much()), &secret).await.unwrap();
    findings.retain(|one| one.presence != ResourcePresence::Present);
    let unknown: Vec<_> = findings.iter().map(|one| (one.path.as_str(), one.presence)).collect();
    assert_eq!(unknown, [("providerSpec.serviceAccounts[0].email", ResourcePresence::Unknown)], "{findings:?}");
    assert_eq!(world.gce.lock().of_call("account").count(), 0);
}

#[rstest]
#[case("../../zones/x")]
#[case("n2?x=y")]
#[case("a b")]
#[tokio::test]
async fn a_name_cannot_lead_elsewhere(#[case] name: &str) {
    let world = world().await;
    let findings = inspect(&world, spec_with(&json!({ "machineType": name }))).await;
    let found = findings.iter().find(|one| one.path == "providerSpec.machineType").unwrap();
    assert_eq!(
        *found,
        ResourceFinding::missing("providerSpec.machineType", format!("europe-west1-b does not offer {name}"))
    );
    assert_eq!(world.gce.lock().of_call("machineTypes.get").count(), 0);
}

#[rstest]
#[case("projects/os/global/images/os-1", "os-1")]
#[case("https://www.googleapis.com/compute/v1/projects/os/global/images/os-1", "os-1")]
#[case::own("global/images/own", "own")]
#[case::family("projects/os/global/images/family/os", "os-9")]
#[tokio::test]
async fn images_are_found_by_all_that_google_takes(#[case] image: &str, #[case] name: &str) {
    let world = world().await;
    for (path, name) in [("my-project/global/images/own", "own"), ("os/global/images/family/os", "os-9")] {
        let image = json!({"kind": "compute#image", "name": name, "status": "READY"});
        world.gce.lock().things.insert(path.to_owned(), image);
    }
    let mut disk = spec()["disks"][0].clone();
    disk["image"] = image.into();
    let findings = inspect(&world, spec_with(&json!({ "disks": [disk] }))).await;
    assert!(findings.contains(&ResourceFinding::present("providerSpec.disks[0].image", name)), "{findings:#?}");
}
