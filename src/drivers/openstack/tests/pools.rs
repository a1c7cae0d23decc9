//! Members of pools.

use std::{sync::Arc, time::Duration};

use mcm_api::load_balancer::{LoadBalancer, Pool, TargetGroup};
use mcm_driver::{Code, Driver, DriverError, MachineRequest};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{
    World, code, driver_that_settles,
    fake::{self, NETWORK_ID, Octavia, POOL_ID, SECOND_NETWORK_ID, SECOND_SUBNET_ID, SUBNET_ID, octavia},
    requests::recorded,
    server::Fault,
    spec_with, unmeasured, with_id,
};

const OTHER_POOL: &str = "00000000-0000-4000-8000-0000000000ff";

fn pool_with(change: fn(&mut Pool)) -> LoadBalancer {
    let mut pool = Pool { id: POOL_ID.to_owned(), ..Pool::default() };
    change(&mut pool);
    LoadBalancer::OpenstackPool(pool)
}

fn pool() -> LoadBalancer {
    pool_with(|_| {})
}

fn pool_in_subnet() -> LoadBalancer {
    pool_with(|pool| pool.subnet_id = Some(SUBNET_ID.to_owned()))
}

/// A machine with a server whose only port has the address.
struct Place {
    world: World,
    request: MachineRequest,
    server: String,
    address: String,
}

impl Place {
    async fn new() -> Self {
        Self::with_networks(json!({}), &[NETWORK_ID]).await
    }

    async fn with_networks(class: Value, networks: &[&str]) -> Self {
        let world = World::new().await;
        let id = world.put("a", &[super::CLUSTER, super::ROLE, (super::UID, "uid-a")]);
        let server = id.rsplit('/').next().unwrap().to_owned();
        let mut address = String::new();
        {
            let cloud = &mut world.openstack.lock().cloud;
            cloud.ports.retain(|_, port| port.device != server);
            for network in networks {
                let port = cloud.put_port("", network, &server, "", &[]);
                if *network == NETWORK_ID {
                    address = cloud.ports[&port].fixed_ips[0]["ip_address"].as_str().unwrap().to_owned();
                }
            }
        }
        let request = with_id(world.request_for("a", "uid-a", spec_with(&class)), &id);
        let request = MachineRequest { may_pause: true, ..request };
        Self { world, request, server, address }
    }

    fn name(&self) -> String {
        format!("mcm-{}", self.server)
    }

    /// A member of the VM with the default port.
    fn member(&self) -> String {
        format!("{}:6443", self.address)
    }

    fn members(&self) -> Vec<String> {
        self.world.openstack.lock().cloud.octavia.addresses()
    }

    fn names(&self) -> Vec<String> {
        let openstack = self.world.openstack.lock();
        openstack.cloud.octavia.members.values().map(|member| member.name.clone()).collect()
    }

    fn octavia<T>(&self, change: impl FnOnce(&mut fake::Octavia) -> T) -> T {
        change(&mut self.world.openstack.lock().cloud.octavia)
    }

    async fn register(&self, balancer: &LoadBalancer) -> Result<(), DriverError> {
        self.change(balancer, true).await
    }

    async fn deregister(&self, balancer: &LoadBalancer) -> Result<(), DriverError> {
        self.change(balancer, false).await
    }

    async fn call(
        &self,
        request: &MachineRequest,
        balancer: &LoadBalancer,
        is_member: bool,
    ) -> Result<(), DriverError> {
        match is_member {
            true => self.world.driver.register(request, balancer).await,
            false => self.world.driver.deregister(request, balancer).await,
        }
    }

    /// Calls as the provider does, without its pauses.
    async fn change(&self, balancer: &LoadBalancer, is_member: bool) -> Result<(), DriverError> {
        for _ in 0..20 {
            match self.call(&self.request, balancer, is_member).await {
                Err(error) if error.call_again_in.is_some() => {}
                done => return done,
            }
        }
        panic!("it does not come to an end")
    }
}

/// Octavia may carry an addition out after a list that lacks it.
#[tokio::test]
async fn an_addition_without_an_answer_leaves_no_member_behind() {
    let mut place = Place::new().await;
    place.world.driver = driver_that_settles(Duration::from_secs(1), Duration::from_secs(6), unmeasured());
    place.world.fail("member.create", Fault::Late(Duration::from_secs(4)), 1);
    assert_eq!(code(place.register(&pool()).await), Code::DeadlineExceeded);
    while let Err(error) = place.call(&place.request, &pool(), false).await {
        assert!(error.call_again_in.is_some(), "{error}");
        sleep(Duration::from_millis(20)).await;
    }
    while place.octavia(|octavia| octavia.members.is_empty() && octavia.changes.is_empty()) {
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(place.members(), [""; 0]);
}

#[tokio::test]
async fn a_vm_is_a_member_until_it_is_deregistered() {
    let place = Place::new().await;
    place.octavia(|octavia| octavia.put("of another tool", "10.0.9.9", 6443, None));
    for _ in 0..2 {
        place.register(&pool()).await.unwrap();
        assert_eq!(place.members(), ["10.0.9.9:6443".to_owned(), place.member()]);
    }
    for _ in 0..2 {
        place.deregister(&pool()).await.unwrap();
        assert_eq!(place.members(), ["10.0.9.9:6443"], "members of others stay");
    }
    assert_eq!((place.world.calls("member.create"), place.world.calls("member.delete")), (1, 1));
    place.world.assert_valid_requests();
}

#[tokio::test]
async fn a_registration_sends_this_and_nothing_else() {
    let place = Place::new().await;
    place.register(&pool_in_subnet()).await.unwrap();
    let server = &place.server;
    let look = json!(["GET", format!("/compute/v2.1/servers/{server}"), null]);
    let ports = json!(["GET", format!("/network/v2.0/ports?device_id={server}"), null]);
    let shown = json!(["GET", format!("/load-balancer/v2.0/lbaas/pools/{POOL_ID}"), null]);
    let list = json!(["GET", format!("/load-balancer/v2.0/lbaas/pools/{POOL_ID}/members?limit=500"), null]);
    let member = json!({"member": {
        "name": format!("mcm-{server}-{SUBNET_ID}"), "address": place.address, "protocol_port": 6443, "subnet_id": SUBNET_ID,
    }});
    let added = json!(["POST", format!("/load-balancer/v2.0/lbaas/pools/{POOL_ID}/members"), member]);
    let found = recorded(&place.world);
    let looks = [look, ports, shown.clone(), list.clone()];
    assert_eq!(found[1..], [looks.as_slice(), &[added], &looks].concat());
    let id = place.octavia(|octavia| octavia.members.keys().next().unwrap().clone());
    place.deregister(&pool_in_subnet()).await.unwrap();
    let removed = json!(["DELETE", format!("/load-balancer/v2.0/lbaas/pools/{POOL_ID}/members/{id}"), null]);
    assert_eq!(recorded(&place.world), [shown.clone(), list.clone(), removed, shown, list]);
}

/// Each call ends at once: the next one reads the result of the change.
#[tokio::test]
async fn a_change_counts_once_octavia_has_carried_it_out() {
    let place = Place::new().await;
    place.octavia(|octavia| octavia.takes = 2);
    for is_member in [true, false] {
        let mut pauses = 0;
        loop {
            let Err(error) = place.call(&place.request, &pool(), is_member).await else { break };
            assert!(error.call_again_in.is_some() && error.code == Code::Unavailable, "{error}");
            pauses += 1;
        }
        assert!(pauses >= 3, "{pauses}");
    }
    let patient = MachineRequest { may_pause: false, ..place.request.clone() };
    for is_member in [true, false] {
        place.call(&patient, &pool(), is_member).await.unwrap();
    }
    assert_eq!((place.members(), place.world.calls("member.create")), (Vec::new(), 2));
}

/// The load balancer carries out the change of another member.
#[rstest]
#[tokio::test]
async fn a_load_balancer_that_is_busy_is_waited_for(#[values(true, false)] is_member: bool) {
    let place = Place::new().await;
    if !is_member {
        place.register(&pool()).await.unwrap();
    }
    place.octavia(|octavia| {
        (octavia.status, octavia.is_held) = ("PENDING_UPDATE".to_owned(), true);
    });
    let answer = place.call(&place.request, &pool(), is_member).await;
    assert!(answer.as_ref().is_err_and(|error| error.call_again_in.is_some()), "{answer:?}");
    place.octavia(|octavia| octavia.is_held = false);
    place.change(&pool(), is_member).await.unwrap();
    assert_eq!(place.members().len(), usize::from(is_member));
}

/// Octavia carried the other change out before the driver looked.
#[rstest]
#[case::was_busy("Pool p is immutable and cannot be updated.")]
#[case::another_conflict("Another member on this pool is already using ip 10.0.0.1 on protocol_port 6443")]
#[tokio::test]
async fn a_conflict_that_has_passed_is_no_failure(#[case] text: &str) {
    let place = Place::new().await;
    place.world.fail("member.create", Fault::Error(octavia(409, text)), 1);
    let error = place.call(&place.request, &pool(), true).await.unwrap_err();
    assert!(error.call_again_in.is_some(), "{error}");
    place.register(&pool()).await.unwrap();
    assert_eq!(place.members(), [place.member()]);
}

#[rstest]
#[case::failed("ERROR", "2999-01-01T00:00:00", Code::FailedPrecondition)]
#[case::stuck("PENDING_UPDATE", "2026-01-01T00:00:00", Code::DeadlineExceeded)]
#[tokio::test]
async fn a_load_balancer_that_takes_no_change_is_shown(
    #[case] status: &str,
    #[case] changed: &str,
    #[case] expected: Code,
) {
    let place = Place::new().await;
    place.octavia(|octavia| {
        (octavia.status, octavia.changed, octavia.is_held) = (status.to_owned(), changed.to_owned(), true);
    });
    let error = place.register(&pool()).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (expected, None));
    assert!(error.message.contains(&format!("provisioning_status {status}")), "{error}");
    assert!(error.message.contains(&format!("openstack loadbalancer failover {}", Octavia::BALANCER_ID)), "{error}");
}

#[tokio::test]
async fn a_member_that_octavia_could_not_add_is_shown() {
    let place = Place::new().await;
    place.octavia(|octavia| octavia.breaks = true);
    let error = place.register(&pool()).await.unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains("provisioning_status ERROR"), "{error}");
    place.octavia(|octavia| octavia.breaks = false);
    place.deregister(&pool()).await.unwrap();
    assert_eq!(place.members(), [""; 0], "it leaves as any other");
}

#[tokio::test]
async fn a_member_that_octavia_could_not_remove_is_shown_and_removed_again() {
    let place = Place::new().await;
    place.register(&pool()).await.unwrap();
    place.octavia(|octavia| octavia.breaks = true);
    let mut error = place.call(&place.request, &pool(), false).await.unwrap_err();
    assert!(!error.message.contains("ERROR"), "{error}");
    while !error.message.contains("has provisioning_status ERROR") {
        error = place.call(&place.request, &pool(), false).await.unwrap_err();
        assert!(error.call_again_in.is_some(), "{error}");
    }
    assert!(error.message.contains(Octavia::BALANCER_ID), "{error}");
    place.octavia(|octavia| octavia.breaks = false);
    place.deregister(&pool()).await.unwrap();
    assert_eq!(place.members(), [""; 0]);
}

/// The server and its ports were deleted: the name of the member has its ID.
#[tokio::test]
async fn a_member_leaves_by_the_id_of_its_server() {
    let mut place = Place::new().await;
    place.register(&pool()).await.unwrap();
    {
        let cloud = &mut place.world.openstack.lock().cloud;
        cloud.servers.clear();
        cloud.ports.clear();
    }
    Arc::make_mut(&mut place.request.machine).status = None;
    place.deregister(&pool()).await.unwrap();
    assert_eq!(place.members(), [""; 0]);
    assert_eq!(code(place.register(&pool()).await), Code::FailedPrecondition, "there is no server");
}

/// By another tool, or for a server that had the address before.
#[rstest]
#[case::of_another_tool("by hand", None, &pool())]
#[case::of_a_server_that_is_gone("mcm-00000009-0000-4000-8000-000000000000", None, &pool())]
#[case::in_the_subnet("by hand", Some(SUBNET_ID), &pool_in_subnet())]
#[tokio::test]
async fn a_member_with_the_address_of_the_vm_becomes_ours(
    #[case] name: &str,
    #[case] subnet: Option<&str>,
    #[case] balancer: &LoadBalancer,
) {
    let place = Place::new().await;
    place.octavia(|octavia| octavia.put(name, &place.address, 6443, subnet));
    place.register(balancer).await.unwrap();
    assert_eq!((place.members(), place.world.calls("member.create")), (vec![place.member()], 0));
    assert!(place.names()[0].starts_with(&place.name()), "{:?}", place.names());
    place.deregister(balancer).await.unwrap();
    assert_eq!(place.members(), [""; 0]);
    place.world.assert_valid_requests();
}

/// Octavia never changes the subnet of a member, and what others configured is not deleted.
#[tokio::test]
async fn a_member_of_others_in_another_subnet_is_left_alone() {
    let place = Place::new().await;
    place.octavia(|octavia| octavia.put("by hand", &place.address, 6443, Some(SECOND_SUBNET_ID)));
    let error = place.register(&pool_in_subnet()).await.unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains(SECOND_SUBNET_ID), "{error}");
    assert_eq!((place.names(), place.world.calls("member.delete")), (vec!["by hand".to_owned()], 0));
}

/// The provider registers the VM with the new port and subnet before it deregisters it with the old ones.
#[rstest]
#[case::port(&pool(), &pool_with(|pool| pool.protocol_port = 443), ":443")]
#[case::subnet(&pool(), &pool_in_subnet(), ":6443")]
#[case::no_subnet(&pool_in_subnet(), &pool(), ":6443")]
#[tokio::test]
async fn a_changed_field_leads_to_another_member(
    #[case] old: &LoadBalancer,
    #[case] new: &LoadBalancer,
    #[case] port: &str,
) {
    let place = Place::new().await;
    place.register(old).await.unwrap();
    place.register(new).await.unwrap();
    place.deregister(old).await.unwrap();
    assert_eq!(place.members(), [format!("{}{port}", place.address)]);
    place.register(new).await.unwrap();
    assert_eq!(place.world.calls("member.create"), 2);
    place.deregister(new).await.unwrap();
    assert_eq!(place.members(), [""; 0]);
}

#[tokio::test]
async fn a_vm_with_another_address_leaves_the_old_one() {
    let place = Place::new().await;
    place.register(&pool()).await.unwrap();
    {
        let cloud = &mut place.world.openstack.lock().cloud;
        let port = cloud.ports.values_mut().find(|port| port.device == place.server).unwrap();
        port.fixed_ips[0]["ip_address"] = "10.0.7.7".into();
    }
    place.register(&pool()).await.unwrap();
    assert_eq!(place.members(), ["10.0.7.7:6443"]);
}

#[rstest]
#[case::first_network(json!({"networkID": null, "networks": [{"id": NETWORK_ID}, {"id": SECOND_NETWORK_ID}]}), &pool())]
#[case::subnet(json!({"networkID": null, "networks": [{"id": SECOND_NETWORK_ID}, {"id": NETWORK_ID}]}), &pool_in_subnet())]
#[tokio::test]
async fn a_vm_in_several_networks_has_one_member(#[case] class: Value, #[case] balancer: &LoadBalancer) {
    let place = Place::with_networks(class, &[SECOND_NETWORK_ID, NETWORK_ID]).await;
    place.register(balancer).await.unwrap();
    assert_eq!(place.members(), [place.member()]);
}

#[tokio::test]
async fn a_vm_without_an_address_in_the_subnet_is_not_registered() {
    let place = Place::with_networks(json!({}), &[SECOND_NETWORK_ID]).await;
    let error = place.register(&pool_in_subnet()).await.unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains(SUBNET_ID) && place.members().is_empty(), "{error}");
}

#[tokio::test]
async fn the_server_of_another_cluster_is_not_registered() {
    let place = Place::new().await;
    for server in place.world.openstack.lock().cloud.servers.values_mut() {
        server.metadata =
            [("kubernetes.io-cluster-other".to_owned(), "1".to_owned()), (super::ROLE.0.to_owned(), "1".to_owned())]
                .into();
    }
    assert_eq!(code(place.register(&pool()).await), Code::FailedPrecondition);
    assert_eq!(place.members(), [""; 0]);
}

#[tokio::test]
async fn all_pages_of_members_are_read() {
    let place = Place::new().await;
    place.octavia(|octavia| {
        octavia.page = 2;
        (1..=5).for_each(|number| drop(octavia.put("other", &format!("10.0.8.{number}"), 6443, None)));
    });
    for _ in 0..2 {
        place.register(&pool()).await.unwrap();
    }
    assert_eq!((place.members().len(), place.world.calls("member.create")), (6, 1));
    place.deregister(&pool()).await.unwrap();
    assert_eq!(place.members().len(), 5);
}

#[rstest]
#[case::no_pool(pool_with(|pool| pool.id = OTHER_POOL.to_owned()), Code::NotFound)]
#[case::no_id(pool_with(|pool| pool.id = "../pools".to_owned()), Code::InvalidArgument)]
#[case::of_another_cloud(LoadBalancer::AwsTargetGroup(TargetGroup::default()), Code::Unimplemented)]
#[tokio::test]
async fn a_pool_that_cannot_have_the_vm_is_refused(#[case] balancer: LoadBalancer, #[case] expected: Code) {
    let place = Place::new().await;
    assert_eq!(code(place.register(&balancer).await), expected);
    assert_eq!(code(place.deregister(&balancer).await), expected);
    assert_eq!(place.members(), [""; 0]);
}

#[tokio::test]
async fn a_cloud_without_octavia_is_named() {
    let place = Place::new().await;
    place.world.openstack.lock().cloud.without = vec!["load-balancer"];
    let error = place.register(&pool()).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("no public endpoint of type load-balancer"), "{error}");
}

/// An answer that is not Octavia's own does not say that the pool does not exist.
#[rstest]
#[case::proxy("pool.get", Fault::Status(404), Code::Unknown)]
#[case::proxy_later("member.list", Fault::Status(404), Code::Unknown)]
#[case::policy(
    "pool.get",
    Fault::Error(octavia(403, "Policy does not allow this request to be performed.")),
    Code::PermissionDenied
)]
#[case::policy_of_writes(
    "member.delete",
    Fault::Error(octavia(403, "Policy does not allow this request to be performed.")),
    Code::PermissionDenied
)]
#[case::unavailable("member.list", Fault::Status(503), Code::Unavailable)]
#[case::lost("member.delete", Fault::LostAnswer, Code::Unknown)]
#[tokio::test]
async fn any_other_failure_leaves_the_membership_unknown(
    #[case] call: &'static str,
    #[case] fault: Fault,
    #[case] expected: Code,
) {
    let place = Place::new().await;
    place.register(&pool()).await.unwrap();
    place.world.fail(call, fault, 99);
    assert_eq!(code(place.deregister(&pool()).await), expected);
}

#[tokio::test]
async fn a_used_up_quota_and_a_wrong_subnet_are_shown() {
    let place = Place::new().await;
    place.octavia(|octavia| octavia.quota = 0);
    let error = place.register(&pool()).await.unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    place.octavia(|octavia| octavia.quota = 9);
    place.world.fail("member.create", Fault::Error(octavia(404, "Subnet s not found.")), 1);
    let error = place.register(&pool()).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument, "no missing pool: {error}");
    place.register(&pool()).await.unwrap();
}

/// The answer of the request that added the member was lost.
#[tokio::test]
async fn a_lost_answer_leads_to_no_second_member() {
    let place = Place::new().await;
    place.world.fail("member.create", Fault::LostAnswer, 1);
    let lost = place.register(&pool()).await.unwrap_err();
    assert!(lost.code.is_transient(), "{lost}");
    place.register(&pool()).await.unwrap();
    assert_eq!((place.members(), place.world.calls("member.create")), (vec![place.member()], 1));
}
