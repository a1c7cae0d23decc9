//! The driver finds, creates, initializes and deletes VMs of a fake EC2.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rstest::rstest;
use serde_json::json;

use super::{
    OWNER, code, driver,
    fake::{FakeInstance, FakeInterface, Fault, Shared, serve},
    request, request_for, secret, spec_with, start, start_cloud, with_id,
};
use crate::{AwsCloud, NAME, Patience, accounts::Access};
use mcm_api::machine::SecretRef;
use mcm_driver::{
    Code, ListedVm, MachineRequest, SecretData, SecretPolicy,
    cloud::{CloudDriver, RequestReporter},
    guard::DriverGuards,
    interface::Driver,
};

/// Puts a VM into the cloud that the driver did not create.
pub(super) fn put(cloud: &Shared, id: &str, tags: &[(&str, &str)], state: &'static str) {
    let mut all: BTreeMap<String, String> =
        tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    for marker in ["kubernetes.io/cluster/shoot", "kubernetes.io/role/node"] {
        all.entry(marker.to_owned()).or_insert_with(|| "1".to_owned());
    }
    all.retain(|_, value| !value.is_empty());
    let dns_name = format!("{id}.internal");
    let instance = FakeInstance { id: id.to_owned(), state, tags: all, dns_name, ..FakeInstance::default() };
    cloud.lock().instances.insert(id.to_owned(), instance);
}

#[tokio::test]
async fn a_vm_lives_from_create_to_delete() {
    let (cloud, driver) = start().await;
    assert_eq!(code(driver.status(&request("a")).await), Code::NotFound);
    let vm = driver.create(&request("a")).await.unwrap();
    assert_eq!(vm.provider_id, "aws:///eu-west-1/i-00000000000000000");
    assert_eq!(vm.node_name, "ip-10-0-0-0.eu-west-1.compute.internal");
    assert_eq!(vm.zone.as_deref(), Some("eu-west-1a"));
    let addresses: Vec<String> = vm.addresses.iter().map(|one| format!("{} {}", one.type_, one.address)).collect();
    let expected = [
        "InternalIP 10.0.0.1",
        "ExternalIP 198.51.100.1",
        "InternalDNS ip-10-0-0-0.eu-west-1.compute.internal",
        "ExternalDNS ec2-198-51-100-1.example.com",
        "Hostname ip-10-0-0-0.eu-west-1.compute.internal",
    ];
    assert_eq!((addresses, &vm.last_known_state), (expected.map(str::to_owned).to_vec(), &None));
    assert_eq!(driver.status(&request("a")).await.unwrap(), vm);
    let known = with_id(request("a"), &vm.provider_id);
    assert_eq!(driver.status(&known).await.unwrap(), vm);
    let entry = ListedVm::new("a", Some(OWNER.to_owned()));
    assert_eq!(driver.list(&known.class, &secret()).await.unwrap(), [(vm.provider_id.clone(), entry)].into());
    assert_eq!(driver.delete(&known).await.unwrap(), None);
    assert_eq!(cloud.lock().alive().len(), 0);
    assert_eq!(driver.list(&known.class, &secret()).await.unwrap(), BTreeMap::new());
    driver.delete(&known).await.expect("nothing there is success");
    assert_eq!(cloud.lock().sent("TerminateInstances").len(), 1, "a VM that is going is not deleted again");
}

#[rstest]
#[case::by_name("", "shutting-down")]
#[case::by_name("", "terminated")]
#[case::by_id("aws:///eu-west-1/i-1", "shutting-down")]
#[case::by_id("aws:///eu-west-1/i-1", "terminated")]
#[tokio::test]
async fn a_vm_that_is_going_is_absent(#[case] provider_id: &str, #[case] state: &'static str) {
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", &[("Name", "a")], state);
    assert_eq!(code(driver.status(&with_id(request("a"), provider_id)).await), Code::NotFound);
}

#[rstest]
#[case("pending")]
#[case("running")]
#[case("stopping")]
#[case("stopped")]
#[tokio::test]
async fn a_vm_in_any_other_state_exists(#[case] state: &'static str) {
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", &[("Name", "a")], state);
    assert_eq!(driver.status(&request("a")).await.unwrap().provider_id, "aws:///eu-west-1/i-1");
    assert_eq!(driver.list(&request("a").class, &secret()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn two_vms_of_one_machine_are_told_and_both_deleted() {
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", &[("Name", "a")], "running");
    put(&cloud, "i-2", &[("Name", "a")], "pending");
    let error = driver.status(&request("a")).await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (Code::OutOfRange, "machine \"a\" has several VMs: i-1, i-2"));
    assert_eq!(code(driver.create(&request("a")).await), Code::OutOfRange);
    assert_eq!(code(driver.initialize(&initializing()).await), Code::Uninitialized);
    assert_eq!(driver.status(&with_id(request("a"), "aws:///eu-west-1a/i-2")).await.unwrap().node_name, "i-2.internal");
    driver.delete(&with_id(request("a"), "aws:///eu-west-1/i-2")).await.unwrap();
    assert_eq!(cloud.lock().alive().len(), 1);
    put(&cloud, "i-3", &[("Name", "a")], "pending");
    driver.delete(&request("a")).await.unwrap();
    assert_eq!(cloud.lock().alive().len(), 0);
}

#[rstest]
#[case::renamed(&[("Name", "renamed")], true)]
#[case::role_removed(&[("Name", "a"), ("kubernetes.io/role/node", "")], true)]
#[case::all_tags_removed(&[("kubernetes.io/cluster/shoot", ""), ("kubernetes.io/role/node", "")], true)]
#[case::of_another_cluster(&[("Name", "a"), ("kubernetes.io/cluster/shoot", ""), ("kubernetes.io/cluster/other", "1")], false)]
#[tokio::test]
async fn a_provider_id_finds_its_vm_without_tags_but_not_one_of_another_cluster(
    #[case] tags: &[(&str, &str)],
    #[case] is_ours: bool,
) {
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", tags, "running");
    let known = with_id(request("a"), "aws:///eu-west-1/i-1");
    assert_eq!(driver.status(&known).await.is_ok(), is_ours);
    driver.delete(&known).await.unwrap();
    assert_eq!(cloud.lock().alive().is_empty(), is_ours);
}

#[tokio::test]
async fn filters_are_evaluated_again_where_the_cloud_does_not() {
    let (cloud, driver) = start().await;
    let foreign = [("Name", "a"), ("kubernetes.io/cluster/shoot", ""), ("kubernetes.io/cluster/other", "1")];
    put(&cloud, "i-1", &foreign, "running");
    put(&cloud, "i-2", &[("Name", "a"), ("kubernetes.io/role/node", "")], "running");
    put(&cloud, "i-3", &[("Name", "b")], "running");
    put(&cloud, "i-4", &[("Name", "a")], "terminated");
    cloud.lock().ignores_filters = true;
    assert_eq!(code(driver.status(&request("a")).await), Code::NotFound);
    let expected = BTreeMap::from([("aws:///eu-west-1/i-3".to_owned(), ListedVm::unmarked("b"))]);
    assert_eq!(driver.list(&request("a").class, &secret()).await.unwrap(), expected);
}

#[tokio::test]
async fn a_list_has_all_pages_or_fails() {
    let (cloud, driver) = start().await;
    for number in 0..7 {
        put(&cloud, &format!("i-{number}"), &[("Name", &format!("m-{number}"))], "running");
    }
    cloud.lock().page = Some(3);
    let class = request("a").class;
    assert_eq!(driver.list(&class, &secret()).await.unwrap().len(), 7);
    cloud.lock().faults.push(("DescribeInstances", Fault::Status(500), 99));
    driver.list(&class, &secret()).await.unwrap_err();
    cloud.lock().faults.clear();
    cloud.lock().repeats_page = true;
    assert_eq!(code(driver.list(&class, &secret()).await), Code::Unavailable);
}

#[tokio::test]
async fn machines_that_wait_together_share_their_look_ups() {
    let (cloud, driver) = start().await;
    for number in 0..100 {
        put(&cloud, &format!("i-{number}"), &[("Name", &format!("m-{number}"))], "running");
    }
    let requests: Vec<MachineRequest> = (0..100).map(|number| request(&format!("m-{number}"))).collect();
    let found = join_all(requests.iter().map(|request| driver.status(request))).await;
    for (number, vm) in found.into_iter().enumerate() {
        assert_eq!(vm.unwrap().provider_id, format!("aws:///eu-west-1/i-{number}"));
    }
    assert_eq!(cloud.lock().requests.len(), 1);
    let other_cluster = spec_with(&json!({"tags": {"kubernetes.io/cluster/other": "", "kubernetes.io/role/node": ""}}));
    let apart = [request("m-1"), request_for("m-1", "uid", other_cluster)];
    let codes = join_all(apart.iter().map(|request| driver.status(request))).await;
    assert!(codes[0].is_ok() && codes[1].is_err());
    assert_eq!(cloud.lock().requests.len(), 3, "two clusters share nothing");
}

#[tokio::test]
async fn creation_waits_until_the_vm_is_seen_and_has_a_name() {
    let (cloud, driver) = start().await;
    cloud.lock().template = FakeInstance { hidden: 2, nameless: 2, ..FakeInstance::default() };
    let vm = driver.create(&request("a")).await.unwrap();
    assert_eq!(vm.node_name, "ip-10-0-0-0.eu-west-1.compute.internal");
    assert_eq!(cloud.lock().runs, 1);
}

#[tokio::test]
async fn a_vm_that_stays_without_a_name_is_found_by_the_next_attempt() {
    let (cloud, driver) = start().await;
    cloud.lock().template.nameless = usize::MAX;
    assert_eq!(code(driver.create(&request("a")).await), Code::DeadlineExceeded);
    assert_eq!(code(driver.status(&request("a")).await), Code::Unavailable, "the empty name must not be stored");
    for instance in cloud.lock().instances.values_mut() {
        instance.nameless = 0;
    }
    driver.create(&request("a")).await.unwrap();
    let cloud = cloud.lock();
    assert_eq!((cloud.runs, cloud.instances.len()), (1, 1));
}

#[rstest]
#[case("Server.InsufficientInstanceCapacity", Code::ResourceExhausted)]
#[case("Client.InternalError", Code::Internal)]
#[tokio::test]
async fn a_vm_that_ends_at_once_is_an_error_and_the_next_attempt_gets_another(
    #[case] reason: &'static str,
    #[case] expected: Code,
) {
    let (cloud, driver) = start().await;
    let ended = FakeInstance { state: "terminated", reason: Some((reason, "no")), ..FakeInstance::default() };
    cloud.lock().template = ended;
    assert_eq!(code(driver.create(&request("a")).await), expected);
    cloud.lock().template = FakeInstance::default();
    let vm = driver.create(&request("a")).await.unwrap();
    let tokens: Vec<String> = cloud.lock().sent("RunInstances").iter().map(|one| one["ClientToken"].clone()).collect();
    assert_eq!(tokens, ["uid-a", "uid-a-1"]);
    assert_eq!(driver.status(&request("a")).await.unwrap(), vm);
}

#[tokio::test]
async fn a_spent_token_is_followed_by_the_next() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    {
        let mut cloud = cloud.lock();
        let only = cloud.instances.values_mut().next().unwrap();
        // EC2 shows a terminated VM for an hour and remembers its token for longer.
        (only.state, only.hidden) = ("terminated", usize::MAX);
    }
    driver.create(&request("a")).await.unwrap();
    let tokens: Vec<String> = cloud.lock().sent("RunInstances").iter().map(|one| one["ClientToken"].clone()).collect();
    assert_eq!(tokens, ["uid-a", "uid-a", "uid-a-1"]);
}

#[tokio::test]
async fn other_user_data_finds_the_vm_of_the_earlier_request() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    let mut again = request("a");
    again.secret.0.insert("userData".to_owned(), b"with a new bootstrap token".to_vec());
    let hide = |count| cloud.lock().instances.values_mut().for_each(|instance| instance.hidden = count);
    hide(1);
    let vm = driver.create(&again).await.unwrap();
    assert_eq!(vm.provider_id, "aws:///eu-west-1/i-00000000000000000");
    hide(usize::MAX);
    assert_eq!(code(driver.create(&again).await), Code::Aborted, "it is not seen yet");
    assert_eq!(cloud.lock().instances.len(), 1);
}

#[rstest]
#[case("ami-gone")]
#[case("ami-empty")]
#[tokio::test]
async fn an_image_that_does_not_exist_is_told(#[case] ami: &str) {
    let (cloud, driver) = start().await;
    let request = request_for("a", "uid", spec_with(&json!({"ami": ami})));
    let error = driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.message.contains(ami)), (Code::NotFound, true), "{error}");
    assert_eq!(cloud.lock().runs, 0);
}

#[tokio::test]
async fn without_user_data_nothing_is_created() {
    let (cloud, driver) = start().await;
    let mut request = request("a");
    request.secret.0.remove("userData");
    assert_eq!(code(driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(cloud.lock().runs, 0);
}

#[tokio::test]
async fn a_vm_of_a_class_that_became_invalid_can_be_deleted() {
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", &[("Name", "a")], "running");
    let broken = spec_with(&json!({"ami": null, "blockDevices": 7, "iam": {}}));
    let request = request_for("a", "uid", broken);
    assert_eq!(code(driver.create(&request).await), Code::InvalidArgument);
    driver.delete(&request).await.unwrap();
    assert_eq!(cloud.lock().alive().len(), 0);
    let without_markers = request_for("a", "uid", spec_with(&json!({"tags": {}})));
    assert_eq!(code(driver.delete(&without_markers).await), Code::InvalidArgument);
}

#[rstest]
#[case("gce:///p/z/n")]
#[case("i-1")]
#[tokio::test]
async fn an_id_of_another_cloud_is_refused(#[case] id: &str) {
    let (_cloud, driver) = start().await;
    assert_eq!(code(driver.status(&with_id(request("a"), id)).await), Code::InvalidArgument);
    assert_eq!(code(driver.delete(&with_id(request("a"), id)).await), Code::InvalidArgument);
}

#[tokio::test]
async fn a_class_of_another_provider_is_refused() {
    let (cloud, driver) = start().await;
    let mut request = request("a");
    Arc::make_mut(&mut request.class).provider = "GCP".to_owned();
    assert_eq!(code(driver.create(&request).await), Code::InvalidArgument);
    assert_eq!(code(driver.status(&request).await), Code::InvalidArgument);
    assert_eq!(code(driver.delete(&request).await), Code::InvalidArgument);
    assert_eq!(code(driver.list(&request.class, &secret()).await), Code::InvalidArgument);
    assert_eq!(cloud.lock().requests.len(), 0);
}

/// Two interfaces, one of them EFA, and two prefixes for the first.
pub(super) fn initializing() -> MachineRequest {
    let interface = json!({"subnetID": "s", "securityGroupIDs": ["sg-1"], "ipv6PrefixCount": 2});
    let efa = json!({"subnetID": "s", "securityGroupIDs": ["sg-1"], "interfaceType": "efa"});
    let changes = json!({"srcAndDstChecksEnabled": false, "networkInterfaces": [interface, efa]});
    request_for("a", "uid-a", spec_with(&changes))
}

#[tokio::test]
async fn initialization_disables_the_check_and_assigns_missing_prefixes() {
    let (cloud, driver) = start().await;
    let request = initializing();
    let vm = driver.create(&request).await.unwrap();
    let error = driver.status(&request).await.unwrap_err();
    assert_eq!((error.code, error.vm.as_deref()), (Code::Uninitialized, Some(&vm)));
    assert_eq!(driver.initialize(&request).await.unwrap().provider_id, vm.provider_id);
    assert_eq!(driver.status(&request).await.unwrap(), vm);
    let modified = cloud.lock().sent("ModifyNetworkInterfaceAttribute");
    assert_eq!(modified.len(), 1, "not the EFA interface: {modified:?}");
    assert_eq!((&*modified[0]["NetworkInterfaceId"], &*modified[0]["SourceDestCheck.Value"]), ("eni-0-1", "false"));
    let assigned = cloud.lock().sent("AssignIpv6Addresses");
    assert_eq!((assigned.len(), &*assigned[0]["Ipv6PrefixCount"]), (1, "2"));
    driver.initialize(&with_id(request.clone(), &vm.provider_id)).await.unwrap();
    assert_eq!(cloud.lock().sent("AssignIpv6Addresses").len(), 1, "nothing is left to do");
}

/// EC2 gives the members of an Auto Scaling group a tag, and takes it from one that leaves.
#[tokio::test]
async fn the_members_of_an_auto_scaling_group_are_its_existing_vms() {
    const GROUP: &str = "aws:autoscaling:groupName";
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", &[(GROUP, "pool"), ("kubernetes.io/role/node", "")], "running");
    put(&cloud, "i-2", &[(GROUP, "other")], "running");
    put(&cloud, "i-3", &[(GROUP, "pool")], "terminated");
    put(&cloud, "i-4", &[], "running");
    let class = request("a").class;
    let members = async |group: &str| driver.members_of_group(&class, &secret(), group).await;
    for ignores_filters in [false, true] {
        cloud.lock().ignores_filters = ignores_filters;
        assert_eq!(members("pool").await.unwrap(), ["aws:///eu-west-1/i-1".to_owned()].into());
        assert_eq!(members("none").await.unwrap(), [].into());
    }
    cloud.lock().faults.push(("DescribeInstances", Fault::Status(500), 99));
    members("pool").await.unwrap_err();
}

/// 4.4, path B: the VM of another provider is found by its ID, and listed once it has the markers. Only that of the cluster stays.
#[tokio::test]
async fn a_vm_that_is_named_is_tagged_and_listed_and_keeps_only_the_marker_of_its_cluster() {
    let (cloud, driver) = start().await;
    let request = request("a");
    let id = driver.create(&request).await.unwrap().provider_id;
    cloud.lock().instances.values_mut().for_each(|instance| instance.tags = [("of".into(), "CAPA".into())].into());
    let listed = async || driver.list(&request.class, &request.secret).await.unwrap().into_keys().collect::<Vec<_>>();
    assert_eq!(listed().await, [""; 0]);
    let named = with_id(request.clone(), &id);
    driver.tag(&named, true).await.unwrap();
    assert_eq!(listed().await, [id.as_str()]);
    let tags = cloud.lock().instances.values().next().unwrap().tags.clone();
    assert_eq!(tags.get("machine.sapcloud.io/owner").map(String::as_str), Some(OWNER));
    driver.tag(&named, false).await.unwrap();
    assert_eq!(listed().await, [""; 0]);
    let tags = cloud.lock().instances.values().next().unwrap().tags.clone();
    let kept = [("kubernetes.io/cluster/shoot", "1"), ("Name", "a"), ("of", "CAPA")];
    assert_eq!(tags, kept.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
}

#[tokio::test]
async fn a_vm_of_another_cluster_is_not_tagged() {
    let (cloud, driver) = start().await;
    let request = request("a");
    let id = driver.create(&request).await.unwrap().provider_id;
    let foreign = [("kubernetes.io/cluster/other".to_owned(), "1".to_owned())];
    cloud.lock().instances.values_mut().for_each(|instance| instance.tags = foreign.clone().into());
    assert_eq!(code(driver.tag(&with_id(request, &id), true).await), Code::NotFound);
    assert!(cloud.lock().sent("CreateTags").is_empty());
}

#[rstest]
#[case(1, Some("1"))]
#[case(2, None)]
#[case::more_than_asked_for(3, None)]
#[tokio::test]
async fn only_missing_prefixes_are_assigned(#[case] present: usize, #[case] expected: Option<&str>) {
    let (cloud, driver) = start().await;
    driver.create(&initializing()).await.unwrap();
    cloud.lock().instances.values_mut().for_each(|instance| instance.interfaces[0].prefixes = present);
    driver.initialize(&initializing()).await.unwrap();
    let sent = cloud.lock().sent("AssignIpv6Addresses");
    assert_eq!(sent.first().map(|one| one["Ipv6PrefixCount"].as_str()), expected);
}

#[tokio::test]
async fn prefixes_go_to_the_interface_with_the_index_of_the_class() {
    let (cloud, driver) = start().await;
    let interface = |index, count| json!({"subnetID": "s", "securityGroupIDs": ["sg-1"], "deviceIndex": index, "ipv6PrefixCount": count});
    let request =
        request_for("a", "uid-a", spec_with(&json!({"networkInterfaces": [interface(1, 1), interface(0, 0)]})));
    driver.create(&request).await.unwrap();
    driver.initialize(&request).await.unwrap();
    assert_eq!(cloud.lock().sent("AssignIpv6Addresses")[0]["NetworkInterfaceId"], "eni-0-1");
}

#[rstest]
#[case("ModifyNetworkInterfaceAttribute")]
#[case("AssignIpv6Addresses")]
#[case("DescribeInstances")]
#[tokio::test]
async fn whatever_fails_the_vm_stays_uninitialized(#[case] action: &'static str) {
    let (cloud, driver) = start().await;
    assert_eq!(code(driver.initialize(&initializing()).await), Code::Uninitialized, "there is no VM");
    driver.create(&initializing()).await.unwrap();
    cloud.lock().faults.push((action, Fault::Error("UnauthorizedOperation", 403), 99));
    let error = driver.initialize(&initializing()).await.unwrap_err();
    assert_eq!((error.code, error.message.contains("PermissionDenied")), (Code::Uninitialized, true), "{error}");
}

#[tokio::test]
async fn a_class_that_asks_for_nothing_is_not_initialized() {
    let (cloud, driver) = start().await;
    assert_eq!(code(driver.initialize(&request("a")).await), Code::Unimplemented);
    let enabled = request_for("a", "uid", spec_with(&json!({"srcAndDstChecksEnabled": true})));
    assert_eq!(code(driver.initialize(&enabled).await), Code::Unimplemented);
    assert_eq!(cloud.lock().requests.len(), 0);
    let interface = FakeInterface { source_dest_check: true, ..FakeInterface::default() };
    cloud.lock().template.interfaces = vec![interface];
    driver.create(&request("a")).await.unwrap();
    driver.status(&request("a")).await.expect("the check may stay on");
}

fn secret_with(data: &[(&str, &str)]) -> SecretData {
    SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
}

#[tokio::test]
async fn new_credentials_are_used_at_once() {
    let (cloud, driver) = start().await;
    let class = request("a").class;
    for key in ["AKID-ONE", "AKID-TWO"] {
        let secret = secret_with(&[("accessKeyID", key), ("secretAccessKey", "hunter2")]);
        driver.list(&class, &secret).await.unwrap();
        assert_eq!(cloud.lock().signers.iter().next_back().map(String::as_str), Some(key));
    }
}

#[tokio::test]
async fn a_workload_identity_is_exchanged_for_a_role_once_and_read_again_for_a_new_client() {
    let (cloud, driver) = start().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"token-of-the-workload\n").unwrap();
    let path = file.path().to_str().unwrap();
    let secret = secret_with(&[("workloadIdentityTokenFile", path), ("roleARN", "arn:aws:iam::1:role/mcm")]);
    let class = request("a").class;
    driver.list(&class, &secret).await.unwrap();
    driver.list(&class, &secret).await.unwrap();
    let exchanged = cloud.lock().sent("AssumeRoleWithWebIdentity");
    assert_eq!(exchanged.len(), 1, "credentials are kept until they expire");
    assert_eq!(exchanged[0]["WebIdentityToken"], "token-of-the-workload");
    assert_eq!(exchanged[0]["RoleArn"], "arn:aws:iam::1:role/mcm");
    assert!(cloud.lock().signers.contains("ASIAROLE"));
}

#[rstest]
#[case::denied(Some(Fault::Error("AccessDenied", 403)), Code::PermissionDenied)]
#[case::bad_token(Some(Fault::Error("InvalidIdentityToken", 400)), Code::Unauthenticated)]
#[case::down(Some(Fault::Status(503)), Code::Unavailable)]
#[case::no_file(None, Code::Unauthenticated)]
#[tokio::test]
async fn a_workload_identity_that_fails_says_why(#[case] fault: Option<Fault>, #[case] expected: Code) {
    let (cloud, driver) = start().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"AKIDEXAMPLE").unwrap();
    let absent = std::env::temp_dir().join("no-such-token");
    let path = if fault.is_some() { file.path() } else { &absent }.to_str().unwrap();
    cloud.lock().faults.extend(fault.map(|fault| ("AssumeRoleWithWebIdentity", fault, 99)));
    let secret = secret_with(&[("workloadIdentityTokenFile", path), ("roleARN", "arn")]);
    let error = driver.list(&request("a").class, &secret).await.unwrap_err();
    assert_eq!(error.code, expected, "{error}");
    assert!(!error.message.contains("AKIDEXAMPLE"), "{error}");
}

#[tokio::test]
async fn a_secret_may_name_the_endpoint_of_its_cloud() {
    let (cloud, _) = start().await;
    let url = serve(&cloud).await;
    let driver = driver("http://127.0.0.1:9");
    let mut secret = secret();
    assert_eq!(code(driver.list(&request("a").class, &secret).await), Code::Unavailable);
    secret.0.insert("endpointURL".to_owned(), url.into_bytes());
    driver.list(&request("a").class, &secret).await.unwrap();
}

/// The first class names a Secret without keys, the second a Secret with empty keys, the third none.
#[rstest]
#[case::no_keys(&[("userData", "x")], Some("cloudprovider"))]
#[case::empty_keys(&[("userData", "x"), ("accessKeyID", ""), ("secretAccessKey", "")], Some("cloudprovider"))]
#[case::no_secret(&[("userData", "x")], None)]
#[tokio::test]
async fn a_class_without_keys_is_not_served_with_the_credentials_of_the_process(
    #[case] data: &[(&str, &str)],
    #[case] named: Option<&str>,
) {
    let (cloud, driver) = start().await;
    let mut request = request("a");
    let reference = named.map(|name| SecretRef { name: name.to_owned(), ..SecretRef::default() });
    Arc::make_mut(&mut request.class).credentials_secret_ref = reference;
    request.secret = secret_with(data);
    for error in [
        driver.create(&request).await.map(drop),
        driver.status(&request).await.map(drop),
        driver.delete(&request).await.map(drop),
        driver.list(&request.class, &request.secret).await.map(drop),
    ] {
        let error = error.unwrap_err();
        assert!(error.code == Code::InvalidArgument && error.message.contains("accessKeyID"), "{error}");
    }
    assert_eq!(cloud.lock().requests.len(), 0);
}

#[tokio::test]
async fn nothing_is_sent_to_an_endpoint_that_is_not_allowed() {
    let (cloud, url) = start_cloud().await;
    let policy = SecretPolicy::default();
    let access = Access { secrets: policy, ..Access::default() };
    let requests = RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer);
    let driver = CloudDriver(AwsCloud::new(access, Patience::default(), requests));
    let mut secret = secret();
    secret.0.insert("endpointURL".to_owned(), url.into_bytes());
    assert_eq!(code(driver.list(&request("a").class, &secret).await), Code::InvalidArgument);
    assert_eq!(cloud.lock().requests.len(), 0);
}

#[tokio::test]
async fn pages_in_a_circle_fail() {
    let (cloud, driver) = start().await;
    for number in 0..4 {
        put(&cloud, &format!("i-{number}"), &[("Name", &format!("m-{number}"))], "running");
    }
    {
        let mut cloud = cloud.lock();
        (cloud.page, cloud.circles) = (Some(1), true);
    }
    let error = driver.list(&request("a").class, &secret()).await.unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    assert_eq!(cloud.lock().requests.len(), 3);
}

/// Each page names another one, so the list has no end.
#[tokio::test]
async fn pages_without_end_are_given_up() {
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", &[("Name", "a")], "running");
    cloud.lock().has_endless_pages = true;
    let request = request("a");
    let listed = driver.list(&request.class, &secret()).await.unwrap_err();
    let deleted = driver.delete(&request).await.unwrap_err();
    for error in [listed, deleted] {
        assert!(error.code == Code::Unavailable && error.message.contains("more than 1000 pages"), "{error}");
    }
    assert_eq!(cloud.lock().alive().len(), 1);
}

/// EC2 remembers a token for longer than the VM that it was used for.
#[tokio::test]
async fn a_token_whose_vm_does_not_appear_is_given_up_after_a_while() {
    let (cloud, driver) = start().await;
    driver.create(&request("a")).await.unwrap();
    let mut again = request("a");
    again.secret.0.insert("userData".to_owned(), b"with a new bootstrap token".to_vec());
    // It ended, and EC2 does not show it any more.
    cloud.lock().instances.values_mut().for_each(|instance| instance.hidden = usize::MAX);
    assert_eq!(code(driver.create(&again).await), Code::Aborted, "it may be new");
    let give_up = async {
        while driver.create(&again).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), give_up).await.unwrap();
    let tokens: BTreeSet<String> =
        cloud.lock().sent("RunInstances").iter().map(|one| one["ClientToken"].clone()).collect();
    assert_eq!(tokens, ["uid-a".to_owned(), "uid-a-1".to_owned()].into());
}

/// Look-ups may lack a VM right after its creation.
#[rstest]
#[case::new(Some(0), true)]
#[case::old(Some(60), false)]
#[case::orphan(None, false)]
#[tokio::test]
async fn a_new_vm_that_no_look_up_shows_is_terminated_by_its_id(
    #[case] minutes: Option<i64>,
    #[case] is_deleted: bool,
) {
    let (cloud, driver) = start().await;
    let vm = driver.create(&request("a")).await.unwrap();
    cloud.lock().instances.values_mut().for_each(|instance| instance.hidden = 2);
    let mut known = with_id(request("a"), &vm.provider_id);
    let created = minutes.map(|minutes| Time(Timestamp::now() - SignedDuration::from_mins(minutes)));
    Arc::make_mut(&mut known.machine).metadata.creation_timestamp = created;
    driver.delete(&known).await.unwrap();
    let terminated = cloud.lock().sent("TerminateInstances").len();
    assert_eq!((terminated, cloud.lock().alive().is_empty()), (usize::from(is_deleted), is_deleted));
    driver.delete(&known).await.expect("what is gone is deleted");
}

/// The ID of a new machine is wrong.
#[tokio::test]
async fn a_vm_of_another_cluster_is_never_terminated_by_its_id() {
    let (cloud, driver) = start().await;
    let foreign = request_for(
        "b",
        "uid-b",
        spec_with(&json!({"tags": {"kubernetes.io/cluster/other": "1", "kubernetes.io/role/node": "1"}})),
    );
    let vm = driver.create(&foreign).await.unwrap();
    let mut known = with_id(request("a"), &vm.provider_id);
    Arc::make_mut(&mut known.machine).metadata.creation_timestamp = Some(Time(Timestamp::now()));
    driver.delete(&known).await.unwrap();
    assert_eq!(cloud.lock().alive().len(), 1);
}

/// As with Gardener's driver, tags of mcm are left out if EC2 takes no more.
#[rstest]
#[case(47, true, true)]
#[case(48, true, false)]
#[case(49, false, false)]
#[tokio::test]
async fn a_vm_of_a_pool_with_many_tags_lives_from_create_to_delete(
    #[case] count: usize,
    #[case] has_uid: bool,
    #[case] has_owner: bool,
) {
    let (cloud, driver) = start().await;
    let mut tags = json!({"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1"});
    for number in 2..count {
        tags[format!("tag-{number}")] = json!("x");
    }
    let request = request_for("a", "uid-a", spec_with(&json!({"tags": tags})));
    let vm = driver.create(&request).await.unwrap();
    {
        let cloud = cloud.lock();
        let shown = &cloud.alive()[0].tags;
        let has = |key: &str| shown.contains_key(&format!("machine.sapcloud.io/{key}"));
        assert_eq!((has("machine-uid"), has("owner"), shown.len()), (has_uid, has_owner, 50));
    }
    assert_eq!(driver.create(&request).await.unwrap().provider_id, vm.provider_id);
    let listed = driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed[&vm.provider_id].owner.is_some(), has_owner);
    driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
    assert!(cloud.lock().alive().is_empty());
}

#[tokio::test]
async fn credentials_that_aws_refuses_are_fetched_again() {
    let (cloud, driver) = start().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"token").unwrap();
    let path = file.path().to_str().unwrap();
    let secret = secret_with(&[("workloadIdentityTokenFile", path), ("roleARN", "arn")]);
    let class = request("a").class;
    driver.list(&class, &secret).await.unwrap();
    cloud.lock().faults.push(("DescribeInstances", Fault::Error("ExpiredToken", 400), 1));
    assert_eq!(code(driver.list(&class, &secret).await), Code::Unauthenticated);
    driver.list(&class, &secret).await.unwrap();
    assert_eq!(cloud.lock().sent("AssumeRoleWithWebIdentity").len(), 2);
}

#[rstest]
#[case::slow(3600)]
#[case::fast(-3600)]
#[tokio::test]
async fn a_clock_that_is_wrong_costs_one_call(#[case] ahead: i64) {
    let (cloud, driver) = start().await;
    cloud.lock().clock = ahead;
    let class = request("a").class;
    driver.list(&class, &secret()).await.unwrap();
    assert_eq!(cloud.lock().requests.len(), 2);
    driver.list(&class, &secret()).await.unwrap();
    assert_eq!(cloud.lock().requests.len(), 3, "the difference is remembered");
}

/// The VM of a class whose region was changed is elsewhere, so it would count as absent.
#[rstest]
#[case::region("aws:///eu-west-1/i-1", true)]
#[case::zone("aws:///eu-west-1b/i-1", true)]
#[case::local_zone("aws:///eu-west-1-lax-1a/i-1", true)]
#[case::another("aws:///us-east-1/i-1", false)]
#[case::another_with_the_same_start("aws:///eu-west-12/i-1", false)]
#[tokio::test]
async fn an_id_of_another_region_is_refused(#[case] id: &str, #[case] is_known: bool) {
    let (cloud, driver) = start().await;
    put(&cloud, "i-1", &[("Name", "a")], "running");
    let request = with_id(request("a"), id);
    let expected = if is_known { None } else { Some(Code::InvalidArgument) };
    assert_eq!(driver.status(&request).await.err().map(|error| error.code), expected);
    assert_eq!(driver.delete(&request).await.err().map(|error| error.code), expected);
    assert_eq!(cloud.lock().alive().is_empty(), is_known);
}

#[rstest]
#[case(16 * 1024, None)]
#[case(16 * 1024 + 1, Some("userData has 16385 bytes, and EC2 takes at most 16384"))]
#[tokio::test]
async fn user_data_that_is_too_long_is_refused_before_a_creation(#[case] size: usize, #[case] expected: Option<&str>) {
    let (cloud, driver) = start().await;
    let mut request = request("a");
    request.secret.0.insert("userData".to_owned(), vec![b'x'; size]);
    let problems = driver.secret_problems(&request.class, &request.secret);
    let result = driver.create(&request).await;
    match expected {
        None => assert!(result.is_ok() && problems.errors.is_empty(), "{result:?}"),
        Some(text) => {
            let error = result.unwrap_err();
            assert!(error.code == Code::InvalidArgument && error.message.starts_with(text), "{error}");
            assert_eq!(problems.errors[0].text, error.message);
        }
    }
    assert_eq!(cloud.lock().runs, usize::from(expected.is_none()));
}

#[tokio::test]
async fn the_secret_of_a_class_is_checked_without_a_call() {
    let (cloud, driver) = start().await;
    let class = request("a").class;
    assert_eq!(driver.secret_problems(&class, &secret()).errors, []);
    let errors = driver.secret_problems(&class, &secret_with(&[("accessKeyID", "AK")])).errors;
    assert_eq!(errors.len(), 2, "neither credentials nor user data: {errors:?}");
    assert_eq!(cloud.lock().requests.len(), 0);
}

#[rstest]
#[case::another_zone(json!({"zone": "eu-central-1a"}), &["nodeTemplate.zone"])]
#[case::another_region(json!({"region": "eu-central-1", "zone": "eu-west-1a"}), &["nodeTemplate.region"])]
#[case::same(json!({"region": "eu-west-1", "zone": "eu-west-1a"}), &[])]
#[tokio::test]
async fn a_node_template_of_another_region_is_a_warning(
    #[case] template: serde_json::Value,
    #[case] expected: &[&str],
) {
    let (_cloud, driver) = start().await;
    let mut request = request("a");
    Arc::make_mut(&mut request.class).node_template = Some(serde_json::from_value(template).unwrap());
    let warnings = driver.validate(&request.class).warnings;
    assert_eq!(warnings.iter().map(|one| one.path.as_str()).collect::<Vec<_>>(), expected);
}

/// Of Cluster API, whose core deletes the Node next: its kubelet must have ended.
fn infrastructure() -> MachineRequest {
    let mut request = request("a");
    let owner = json!([{
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": "a", "uid": "u",
        "controller": true,
    }]);
    Arc::make_mut(&mut request.machine).metadata.owner_references = serde_json::from_value(owner).unwrap();
    request
}

#[tokio::test]
async fn a_machine_of_cluster_api_is_deleted_when_its_vm_has_ended() {
    let (cloud, driver) = start().await;
    let mut request = infrastructure();
    let vm = driver.create(&request).await.unwrap();
    request.may_pause = true;
    let known = with_id(request.clone(), &vm.provider_id);
    for _ in 0..2 {
        for request in [&request, &known] {
            let error = driver.delete(request).await.unwrap_err();
            assert!(error.call_again_in.is_some() && error.message.ends_with("is shutting down"), "{error}");
        }
    }
    assert_eq!(cloud.lock().sent("TerminateInstances").len(), 1);
    cloud.lock().instances.values_mut().for_each(|instance| instance.state = "terminated");
    driver.delete(&request).await.unwrap();
    driver.delete(&known).await.unwrap();
}

#[tokio::test]
async fn a_deletion_that_may_not_pause_waits_for_the_end_of_the_vm() {
    let (cloud, driver) = start().await;
    let request = infrastructure();
    driver.create(&request).await.unwrap();
    let end = async {
        while cloud.lock().instances.values().any(|instance| instance.state != "shutting-down") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cloud.lock().instances.values_mut().for_each(|instance| instance.state = "terminated");
    };
    let (deleted, ()) = tokio::join!(driver.delete(&request), end);
    deleted.unwrap();
}

/// A spot VM that EC2 took back, among others.
#[rstest]
#[case(Some("Server.SpotInstanceTermination"), "terminated (Server.SpotInstanceTermination)")]
#[case(None, "terminated")]
#[tokio::test]
async fn the_status_of_a_vm_that_ended_has_the_reason_of_ec2(#[case] code: Option<&'static str>, #[case] end: &str) {
    let (cloud, driver) = start().await;
    let vm = driver.create(&request("a")).await.unwrap();
    for instance in cloud.lock().instances.values_mut() {
        instance.state = "terminated";
        instance.reason = code.map(|code| (code, ""));
    }
    let error = driver.status(&with_id(request("a"), &vm.provider_id)).await.unwrap_err();
    assert_eq!((error.code, error.vm.unwrap().halted.as_deref()), (Code::NotFound, Some(end)));
}

/// All Machines of Cluster API are looked at together, every few minutes.
#[tokio::test]
async fn five_hundred_vms_are_looked_at_with_one_list_and_with_three_more_once_ec2_forgot_them() {
    let (cloud, driver) = start().await;
    let known: Vec<MachineRequest> = (0..500)
        .map(|number| {
            let (name, id) = (format!("m-{number}"), format!("i-{number}"));
            let state = if number == 7 { "stopped" } else { "running" };
            put(&cloud, &id, &[("Name", &name), ("machine.sapcloud.io/machine-uid", &format!("uid-{name}"))], state);
            with_id(request(&name), &format!("aws:///eu-west-1/{id}"))
        })
        .collect();
    let look = async || join_all(known.iter().map(|request| driver.status(request))).await;
    let halted: Vec<_> = look().await.into_iter().map(|found| found.unwrap().halted).collect();
    assert_eq!(halted.iter().flatten().collect::<Vec<_>>(), ["stopped"]);
    assert_eq!(cloud.lock().sent("DescribeInstances").len(), 1);
    cloud.lock().instances.clear();
    assert!(look().await.into_iter().all(|found| found.unwrap_err().code == Code::NotFound));
    assert_eq!(cloud.lock().sent("DescribeInstances").len(), 1 + 1 + 3);
}
