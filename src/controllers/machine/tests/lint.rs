//! Plans that no planner makes are refused, and the text names the bound.

use std::{sync::Arc, time::Duration};

use rstest::rstest;
use serde_json::json;

use super::world::{World, at, node, pod, ready};
use crate::machine::{
    Action, ClassView, MachinePolicy, NodeWrite, PodsView, RivalMachines, SecretFacts, Snapshot, TargetNodeView,
    VmCall,
    lint::lint,
    plan,
    views::{DriverVmView, NodeLookup, SecretView},
};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, MachineStatus},
    node::Node,
};
use mcm_driver::{Code, DriverError, Vm};
use mcm_rules::{
    drain::PodFacts,
    plan::Step,
    safety::{
        meltdown::{MeltdownLimits, OutOfService, ReplacementPermit},
        trust::{TargetTrust, TrustInterruption},
    },
};

type Change = fn(&mut Snapshot);

fn as_it_is(_: &mut Snapshot) {}

fn refusals(snapshot: &Snapshot, actions: impl IntoIterator<Item = Action>) -> Vec<String> {
    let step = |action| Step { action, reason: "because".to_owned(), event: None };
    let steps: Vec<_> = actions.into_iter().map(step).collect();
    lint(snapshot, &MachinePolicy::default(), &steps).iter().map(ToString::to_string).collect()
}

/// `None` if the action is not refused.
fn refusal(snapshot: &Snapshot, action: Action) -> Option<String> {
    let texts = refusals(snapshot, [action]);
    assert!(texts.len() <= 1, "{texts:?}");
    texts.into_iter().next()
}

fn edit(snapshot: &mut Snapshot, change: impl FnOnce(&mut Machine)) {
    change(Arc::make_mut(&mut snapshot.machine));
}

fn edit_status(snapshot: &mut Snapshot, change: impl FnOnce(&mut MachineStatus)) {
    edit(snapshot, |machine| change(machine.status.get_or_insert_default()));
}

fn set_phase(snapshot: &mut Snapshot, phase: MachinePhase) {
    edit_status(snapshot, |status| status.current_status.phase = phase);
}

/// Being deleted, so far as this text of its status shows.
fn terminating(snapshot: &mut Snapshot, text: &str) {
    let now = snapshot.now;
    edit(snapshot, |machine| machine.metadata.deletion_timestamp = Some(now.into()));
    set_phase(snapshot, MachinePhase::Terminating);
    edit_status(snapshot, |status| status.last_operation.description = text.to_owned());
}

fn set_label(snapshot: &mut Snapshot, label: &str, value: &str) {
    edit(snapshot, |machine| {
        machine.metadata.labels.as_mut().unwrap().insert(label.to_owned(), value.to_owned());
    });
}

fn own_node(snapshot: &Snapshot) -> Arc<Node> {
    let TargetNodeView::Present(node) = &snapshot.node else { panic!("{:?}", snapshot.node) };
    Arc::clone(node)
}

fn vm() -> Vm {
    Vm { provider_id: "cloud:///1".to_owned(), node_name: "n".to_owned(), ..Vm::default() }
}

fn secrets() -> SecretView {
    SecretView::Read(SecretFacts { has_user_data: true, ..SecretFacts::default() })
}

fn status(phase: MachinePhase, text: &str) -> Action {
    let mut status = MachineStatus::default();
    status.current_status.phase = phase;
    status.last_operation.description = text.to_owned();
    Action::WriteStatus(Box::new(status))
}

fn finalizers(list: &[&str]) -> Action {
    Action::PatchMachine(json!({ "metadata": { "finalizers": list } }))
}

const DRAINED: &str = "Drain successful. Initiate VM deletion";
const VM_GONE: &str = "VM deletion was successful. Initiate node object deletion";
const RELEASED: &str = "something. Initiate machine object finalizer removal";

/// All that a creation needs is known.
fn creating() -> Snapshot {
    let mut snapshot = World::new().snapshot();
    snapshot.learned.secret = secrets();
    snapshot.learned.vm = DriverVmView::NotFound;
    snapshot
}

#[rstest]
#[case::all_is_known(as_it_is, None)]
#[case::being_deleted(|it: &mut Snapshot| terminating(it, ""), Some("it would create a VM too many: the machine is being deleted"))]
#[case::it_has_one(
    |it: &mut Snapshot| edit(it, |machine| machine.spec.provider_id = "cloud:///1".to_owned()),
    Some("it would create a VM too many: spec.providerID is cloud:///1")
)]
#[case::a_secret_is_missing(
    |it: &mut Snapshot| {
        let missing = vec!["the Secret ns/s".to_owned()];
        it.learned.secret = SecretView::Read(SecretFacts { has_user_data: true, missing, ..SecretFacts::default() });
    },
    Some("it would act on unknown facts: the driver would be called without the Secret ns/s")
)]
#[case::pending(|it: &mut Snapshot| set_phase(it, MachinePhase::Pending), None)]
#[case::it_had_one(|it: &mut Snapshot| set_phase(it, MachinePhase::Running), Some("it would create a VM too many: a machine in phase Running had a VM"))]
#[case::the_driver_was_not_asked(
    |it: &mut Snapshot| it.learned.vm = DriverVmView::NotAsked,
    Some("it would act on unknown facts: the driver did not report NotFound in this reconcile")
)]
#[case::the_driver_creates_it(
    |it: &mut Snapshot| {
        it.learned.vm = DriverVmView::NotAsked;
        it.memory.call_failed(VmCall::Create, DriverError::not_done("not yet", Duration::from_secs(1)), at(0));
    },
    None
)]
#[case::the_driver_failed_to_create_it(
    |it: &mut Snapshot| {
        it.learned.vm = DriverVmView::NotAsked;
        it.memory.call_failed(VmCall::Create, DriverError::new(Code::Unavailable, "because"), at(0));
    },
    Some("it would act on unknown facts: the driver did not report NotFound in this reconcile")
)]
#[case::the_driver_found_one(
    |it: &mut Snapshot| it.learned.vm = DriverVmView::Found(vm()),
    Some("it would act on unknown facts: the driver did not report NotFound in this reconcile")
)]
#[case::the_target_is_away(
    |it: &mut Snapshot| it.target = TargetTrust::Untrusted { since: at(0), reason: "silent".to_owned() },
    Some("it would act on unknown facts: the target cluster is not trusted since 2027-01-15T08:00:00Z")
)]
#[case::nothing_holds_the_machine(
    |it: &mut Snapshot| edit(it, |machine| machine.metadata.finalizers = None),
    Some("it would leak a VM: the machine has no finalizer, so it can be deleted before its VM")
)]
#[case::the_classes_were_not_read(|it: &mut Snapshot| it.class = ClassView::Unknown, Some("it would act on unknown facts: the class is unknown"))]
#[case::there_is_no_class(|it: &mut Snapshot| it.class = ClassView::Missing, Some("it would act on unknown facts: the class is unknown"))]
#[case::the_secrets_were_not_read(
    |it: &mut Snapshot| it.learned.secret = SecretView::NotRead,
    Some("it would act on unknown facts: the Secrets of the class were not read in this reconcile")
)]
#[case::the_secrets_cannot_be_read(
    |it: &mut Snapshot| it.learned.secret = SecretView::Failed("forbidden".to_owned()),
    Some("it would act on unknown facts: the Secrets of the class were not read in this reconcile")
)]
fn a_vm_is_created_only_if_there_certainly_is_none(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = creating();
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, Action::CreateVm).as_deref(), refused);
}

#[rstest]
#[case::all_is_known(as_it_is, None)]
#[case::nothing_holds_the_machine(
    |it: &mut Snapshot| edit(it, |machine| machine.metadata.finalizers = None),
    Some("it would leak a VM: the machine has no finalizer, and its VM may be found")
)]
#[case::a_secret_is_missing(
    |it: &mut Snapshot| {
        let missing = vec!["the Secret ns/s".to_owned()];
        it.learned.secret = SecretView::Read(SecretFacts { missing, ..SecretFacts::default() });
    },
    Some("it would act on unknown facts: the driver would be called without the Secret ns/s")
)]
fn a_vm_is_looked_up_only_with_the_finalizer_and_all_secrets(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = creating();
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, Action::GetVmStatus).as_deref(), refused);
}

#[test]
fn one_plan_creates_one_vm() {
    let text = "it would create a VM too many: two VMs in one plan";
    assert_eq!(refusals(&creating(), [Action::CreateVm, Action::CreateVm]), [text, text]);
}

#[rstest]
#[case::half_made(DriverVmView::Uninitialized(vm()), secrets(), None)]
#[case::finished(
    DriverVmView::Found(vm()),
    secrets(),
    Some("it would act on unknown facts: the driver did not report Uninitialized in this reconcile")
)]
#[case::without_secrets(
    DriverVmView::Uninitialized(vm()),
    SecretView::NotRead,
    Some("it would act on unknown facts: the Secrets of the class were not read in this reconcile")
)]
fn a_vm_is_initialized_if_the_driver_says_it_is_not(
    #[case] view: DriverVmView,
    #[case] secret: SecretView,
    #[case] refused: Option<&str>,
) {
    let mut snapshot = creating();
    (snapshot.learned.vm, snapshot.learned.secret) = (view, secret);
    assert_eq!(refusal(&snapshot, Action::InitializeVm).as_deref(), refused);
}

#[test]
fn the_id_of_a_new_vm_is_stored_before_anything_else() {
    let mut snapshot = creating();
    snapshot.learned.vm = DriverVmView::Created(vm());
    let stores = |id: &str| Action::PatchMachine(json!({ "spec": { "providerID": id } }));
    let text = "it would leak a VM: cloud:///1 was created, and the next step does not store its ID";
    assert_eq!(refusal(&snapshot, stores("cloud:///1")), None);
    for other in [status(MachinePhase::Pending, ""), Action::InitializeVm, stores("cloud:///2")] {
        assert_eq!(refusal(&snapshot, other).as_deref(), Some(text));
    }
    edit(&mut snapshot, |machine| machine.spec.provider_id = "cloud:///1".to_owned());
    assert_eq!(refusal(&snapshot, status(MachinePhase::Pending, "")), None);
    let text = "it would leak a VM: spec.providerID is cloud:///1 and would change to \"cloud:///2\"";
    assert_eq!(refusal(&snapshot, stores("cloud:///2")).as_deref(), Some(text));
}

#[test]
fn the_planner_stores_it_before_it_looks_at_the_node() {
    let mut snapshot = creating();
    set_phase(&mut snapshot, MachinePhase::Pending);
    set_label(&mut snapshot, labels::NODE, "n");
    snapshot.learned.vm = DriverVmView::Created(vm());
    let snapshot = snapshot.with_node(TargetNodeView::Present(Arc::new(node("n", ready()))), RivalMachines::default());
    let steps = plan(&snapshot, &MachinePolicy::default()).steps;
    assert_eq!(lint(&snapshot, &MachinePolicy::default(), &steps), []);
}

/// A new VM has the name of this Node.
fn stale(node: Node) -> Snapshot {
    let mut snapshot = creating();
    snapshot.learned.vm = DriverVmView::Found(vm());
    edit(&mut snapshot, |machine| machine.spec.provider_id = "cloud:///1".to_owned());
    snapshot.with_node(TargetNodeView::Present(Arc::new(node)), RivalMachines::default())
}

fn node_of(provider_id: &str, born: i64) -> Node {
    let mut node = node("n", ready());
    node.spec.provider_id = provider_id.to_owned();
    node.metadata.creation_timestamp = Some(at(born).into());
    node
}

const LIVES: &str = "it would delete an object that is still in use: the machine is not being deleted, and no node of an \
                     earlier VM has the name of its VM";

#[rstest]
#[case::of_an_earlier_vm(node_of("cloud:///0", 5), None)]
#[case::of_its_own_vm(node_of("other-form/1", -5), Some(LIVES))]
#[case::older_than_the_machine(node_of("", -5), None)]
#[case::younger_than_the_machine(node_of("", 5), Some(LIVES))]
fn the_vm_of_a_machine_that_lives_is_deleted_only_for_a_stale_node(#[case] node: Node, #[case] refused: Option<&str>) {
    let mut snapshot = stale(node);
    assert_eq!(refusal(&snapshot, Action::DeleteVm).as_deref(), refused);
    set_label(&mut snapshot, labels::NODE, "n");
    assert_eq!(refusal(&snapshot, Action::DeleteVm).as_deref(), Some(LIVES), "its Node is known");
}

#[rstest]
#[case::drained(DRAINED, secrets(), None)]
#[case::forced("Force Drain successful. Delete Volume Attachments", secrets(), None)]
#[case::not_yet_drained(
    "Initiate node drain",
    secrets(),
    Some("it would delete an object that is still in use: the status does not show that the node is drained")
)]
#[case::not_begun(
    "",
    secrets(),
    Some("it would delete an object that is still in use: the status does not show that the node is drained")
)]
#[case::without_secrets(
    DRAINED,
    SecretView::NotRead,
    Some("it would act on unknown facts: the Secrets of the class were not read in this reconcile")
)]
fn the_vm_of_a_terminating_machine_is_deleted_after_the_drain(
    #[case] text: &str,
    #[case] secret: SecretView,
    #[case] refused: Option<&str>,
) {
    let mut snapshot = World::running().snapshot();
    terminating(&mut snapshot, text);
    snapshot.learned.secret = secret;
    assert_eq!(refusal(&snapshot, Action::DeleteVm).as_deref(), refused);
}

/// The Machine is deleted, its Node is cordoned, and these pods were listed.
fn emptied(pods: Vec<PodFacts>, is_cordoned: bool) -> Snapshot {
    let mut snapshot = World::running().snapshot();
    terminating(&mut snapshot, "");
    if let TargetNodeView::Present(node) = &mut snapshot.node {
        Arc::make_mut(node).spec.unschedulable = is_cordoned;
    }
    (snapshot.learned.secret, snapshot.learned.pods) = (secrets(), PodsView::Listed(pods));
    snapshot
}

#[rstest]
#[case::no_pods(emptied(Vec::new(), true), true)]
#[case::pods_of_daemon_sets(emptied(vec![PodFacts { is_daemon: true, ..pod("a") }], true), true)]
#[case::a_pod(emptied(vec![pod("a")], true), false)]
#[case::a_pod_may_come(emptied(Vec::new(), false), false)]
#[case::pods_are_unknown({ let mut it = emptied(Vec::new(), true); it.learned.pods = PodsView::NotListed; it }, false)]
#[case::another_node({ let mut it = emptied(Vec::new(), true); it.node = TargetNodeView::Unknown; it }, false)]
fn the_vm_of_an_empty_node_is_deleted_before_the_status_shows_the_drain(#[case] snapshot: Snapshot, #[case] may: bool) {
    let refused = "it would delete an object that is still in use: the status does not show that the node is drained";
    assert_eq!(refusal(&snapshot, Action::DeleteVm).as_deref(), (!may).then_some(refused));
}

#[rstest]
#[case::of_a_machine_that_lives(
    as_it_is,
    Some("it would leak a VM: it removes the finalizer, and the machine is not being deleted")
)]
#[case::before_the_vm(|it: &mut Snapshot| terminating(it, DRAINED), Some("it would leak a VM: it removes the finalizer, and the VM was not deleted"))]
#[case::after_the_vm(|it: &mut Snapshot| { terminating(it, DRAINED); it.learned.vm = DriverVmView::Deleted; }, None)]
#[case::after_the_vm_that_another_process_deleted(|it: &mut Snapshot| terminating(it, VM_GONE), None)]
#[case::while_the_node_is_not_known(
    |it: &mut Snapshot| { terminating(it, VM_GONE); it.node = TargetNodeView::Unknown; },
    Some("it would act on unknown facts: it removes the finalizer, and node n may exist")
)]
#[case::while_the_cache_misses_the_node(
    |it: &mut Snapshot| { terminating(it, VM_GONE); it.node = TargetNodeView::Missing; },
    Some("it would act on unknown facts: it removes the finalizer, and node n may exist")
)]
#[case::after_the_node(|it: &mut Snapshot| { terminating(it, VM_GONE); it.node = TargetNodeView::Absent; }, None)]
#[case::after_the_node_that_another_process_deleted(|it: &mut Snapshot| { terminating(it, RELEASED); it.node = TargetNodeView::Unknown; }, None)]
fn a_machine_keeps_its_finalizer_while_it_may_have_a_vm(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = World::running().snapshot();
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, finalizers(&["another"])).as_deref(), refused);
    assert_eq!(refusal(&snapshot, finalizers(&["another", labels::FINALIZER])), None);
}

/// Its Node is not healthy, it was read, and every timeout has passed.
fn sick(phase: MachinePhase) -> Snapshot {
    let mut world = World::running();
    world.sleep(24 * 3600);
    world.edit_status(|status| status.current_status.phase = phase);
    let mut snapshot = world.snapshot();
    snapshot.node_was_read(NodeLookup::Name("n".to_owned()), Ok(true));
    snapshot.learned.permit = ReplacementPermit::Held(Vec::new());
    snapshot
}

fn unread(snapshot: &mut Snapshot) {
    snapshot.learned.node_read = None;
}

fn young(snapshot: &mut Snapshot) {
    let now = snapshot.now;
    edit(snapshot, |machine| machine.metadata.creation_timestamp = Some(now.into()));
    edit_status(snapshot, |status| status.current_status.last_update_time = Some(now.into()));
}

const UNREAD: &str = "it would act on unknown facts: node n was not read live in this reconcile";

#[rstest]
#[case::did_not_join(MachinePhase::Pending, as_it_is, None)]
#[case::may_have_joined(MachinePhase::Pending, unread, Some(UNREAD))]
#[case::has_no_vm_yet(MachinePhase::Pending, |it: &mut Snapshot| { unread(it); edit(it, |machine| machine.spec.provider_id.clear()); }, None)]
#[case::cannot_be_created(MachinePhase::CrashLoopBackOff, unread, None)]
#[case::may_still_join(
    MachinePhase::Pending,
    young,
    Some(
        "it would fail a machine before its timeout: creationTimeout 20m0s ends at 2027-01-16T08:20:13Z, now is 2027-01-16T08:00:13Z"
    )
)]
#[case::is_not_healthy(MachinePhase::Unknown, as_it_is, None)]
#[case::may_be_healthy(MachinePhase::Unknown, unread, Some(UNREAD))]
#[case::is_certainly_gone(MachinePhase::Unknown, |it: &mut Snapshot| { unread(it); it.node = TargetNodeView::Absent; }, None)]
#[case::may_recover(
    MachinePhase::Unknown,
    young,
    Some(
        "it would fail a machine before its timeout: healthTimeout 10m0s ends at 2027-01-16T08:10:13Z, now is 2027-01-16T08:00:13Z"
    )
)]
#[case::may_report_again(
    MachinePhase::Unknown,
    |it: &mut Snapshot| it.target = TargetTrust::Trusted { after: Some(TrustInterruption { began: at(0), ended: it.now }) },
    Some("it would fail a machine before its timeout: healthTimeout 10m0s ends at 2027-01-16T08:01:13Z, now is 2027-01-16T08:00:13Z")
)]
#[case::may_be_unknown_for_ever(
    MachinePhase::Unknown,
    |it: &mut Snapshot| edit(it, |machine| machine.spec.configuration.disable_health_timeout = Some(true)),
    Some("it would fail a machine before its timeout: disableHealthTimeout is set")
)]
#[case::nobody_asked_for_the_permit(
    MachinePhase::Unknown,
    |it: &mut Snapshot| it.learned.permit = ReplacementPermit::NotAsked,
    Some("it would replace too many unhealthy machines: it does not hold the permit of pool")
)]
#[case::another_one_has_the_permit(
    MachinePhase::Unknown,
    |it: &mut Snapshot| it.learned.permit = ReplacementPermit::Refused { by: "b".to_owned() },
    Some("it would replace too many unhealthy machines: it does not hold the permit of pool")
)]
#[case::another_one_is_out_of_service(
    MachinePhase::Unknown,
    |it: &mut Snapshot| {
        let other: Machine = serde_json::from_value(json!({ "metadata": { "name": "b", "namespace": "ns", "labels": { "name": "pool" } }, "spec": {} })).unwrap();
        let keys = MeltdownLimits::default().permits_of(&other);
        it.learned.permit = ReplacementPermit::Held(keys.iter().map(|key| OutOfService::for_key(key, [&other])).collect());
    },
    Some("it would replace too many unhealthy machines: out of service of pool: b (not created yet); the limit is 1")
)]
#[case::runs(
    MachinePhase::Running,
    as_it_is,
    Some("it would fail a machine before its timeout: phase Running has no timeout")
)]
#[case::is_updated_in_place(
    MachinePhase::InPlaceUpdating,
    as_it_is,
    Some("it would fail a machine before its timeout: phase InPlaceUpdating has no timeout")
)]
#[case::failed_to_update(MachinePhase::InPlaceUpdateFailed, as_it_is, None)]
#[case::failed_to_update_and_is_patient(
    MachinePhase::InPlaceUpdateFailed,
    |it: &mut Snapshot| edit(it, |machine| machine.spec.configuration.disable_health_timeout = Some(true)),
    Some("it would fail a machine before its timeout: disableHealthTimeout is set")
)]
#[case::failed_to_update_without_a_permit(
    MachinePhase::InPlaceUpdateFailed,
    |it: &mut Snapshot| it.learned.permit = ReplacementPermit::NotAsked,
    Some("it would replace too many unhealthy machines: it does not hold the permit of pool")
)]
#[case::was_given_up_before(MachinePhase::Failed, unread, None)]
fn a_machine_is_given_up_when_its_time_is_over_and_its_node_was_read(
    #[case] phase: MachinePhase,
    #[case] change: Change,
    #[case] refused: Option<&str>,
) {
    let mut snapshot = sick(phase);
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, status(MachinePhase::Failed, "")).as_deref(), refused);
}

#[rstest]
#[case::its_vm_was_deleted(|it: &mut Snapshot| it.learned.vm = DriverVmView::Deleted, true)]
#[case::its_vm_cannot_be_deleted(|it: &mut Snapshot| it.memory.call_failed(VmCall::Delete, DriverError::new(Code::Internal, ""), at(10)), true)]
#[case::its_vm_was_not_deleted(as_it_is, false)]
fn a_machine_whose_vm_has_the_name_of_a_stale_node_fails_at_once(#[case] change: Change, #[case] accepted: bool) {
    let mut snapshot = stale(node_of("cloud:///0", 5));
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, status(MachinePhase::Failed, "")).is_none(), accepted);
}

#[rstest]
#[case::its_node_is_there(as_it_is, None)]
#[case::its_node_is_gone(|it: &mut Snapshot| it.node = TargetNodeView::Absent, None)]
#[case::the_cache_misses_its_node(|it: &mut Snapshot| it.node = TargetNodeView::Missing, Some(UNREAD))]
#[case::nodes_are_not_known(|it: &mut Snapshot| it.node = TargetNodeView::Unknown, Some(UNREAD))]
fn a_running_machine_becomes_unknown_for_a_node_that_was_seen(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = World::running().snapshot();
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, status(MachinePhase::Unknown, "")).as_deref(), refused);
}

const UNDRAINED: &str = "it would act on unknown facts: the drain would end, and node n or its pods are unknown";
const NO_NODE: &str =
    "it would act on unknown facts: the drain would end, and the node of the machine or its pods are unknown";

#[rstest]
#[case::pods_were_listed(|it: &mut Snapshot| it.learned.pods = PodsView::Listed(Vec::new()), None)]
#[case::pods_were_not_listed(as_it_is, Some(UNDRAINED))]
#[case::pods_cannot_be_listed(|it: &mut Snapshot| it.learned.pods = PodsView::Failed("timeout".to_owned()), Some(UNDRAINED))]
#[case::the_node_is_gone(|it: &mut Snapshot| it.node = TargetNodeView::Absent, None)]
#[case::the_cache_misses_the_node(|it: &mut Snapshot| it.node = TargetNodeView::Missing, Some(UNDRAINED))]
#[case::nodes_are_not_known(|it: &mut Snapshot| it.node = TargetNodeView::Unknown, Some(UNDRAINED))]
#[case::no_node_is_known_by_name(|it: &mut Snapshot| { it.node = TargetNodeView::Missing; edit(it, |machine| drop(machine.metadata.labels.take())); }, Some(NO_NODE))]
#[case::no_target(|it: &mut Snapshot| it.node = TargetNodeView::NoTarget, None)]
#[case::by_force(|it: &mut Snapshot| { it.node = TargetNodeView::Unknown; set_label(it, labels::FORCE_DELETION, "true"); }, None)]
#[case::the_deadline_has_passed(|it: &mut Snapshot| { it.node = TargetNodeView::Unknown; it.now = at(2 * 3600 + 60); }, None)]
#[case::almost(|it: &mut Snapshot| { it.node = TargetNodeView::Unknown; it.now = at(2 * 3600); }, Some(UNDRAINED))]
#[case::the_node_is_broken(
    |it: &mut Snapshot| {
        let broken = json!([{ "type": "Ready", "status": "Unknown", "lastTransitionTime": at(-1000) }]);
        it.node = TargetNodeView::Unknown;
        edit_status(it, |status| status.conditions = serde_json::from_value(broken).unwrap());
    },
    None
)]
#[case::the_vm_is_gone(|it: &mut Snapshot| { it.node = TargetNodeView::Unknown; it.learned.vm = DriverVmView::Deleted; }, None)]
#[case::it_was_over_before(|it: &mut Snapshot| { it.node = TargetNodeView::Unknown; terminating(it, DRAINED); }, None)]
fn a_drain_is_over_when_the_pods_of_its_node_are_known(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = World::running().snapshot();
    terminating(&mut snapshot, "Initiate node drain");
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, status(MachinePhase::Terminating, DRAINED)).as_deref(), refused);
    assert_eq!(refusal(&snapshot, status(MachinePhase::Terminating, "Initiate node drain")), None);
}

#[test]
fn a_status_reports_only_deleted_vms_as_missing() {
    let mut snapshot = World::running().snapshot();
    terminating(&mut snapshot, DRAINED);
    let text = "it would leak a VM: the status would show that the VM is deleted, and it was not";
    assert_eq!(refusal(&snapshot, status(MachinePhase::Terminating, VM_GONE)).as_deref(), Some(text));
    snapshot.learned.vm = DriverVmView::Deleted;
    assert_eq!(refusal(&snapshot, status(MachinePhase::Terminating, VM_GONE)), None);
}

fn of_another_machine(snapshot: &mut Snapshot) {
    let mut node = (*own_node(snapshot)).clone();
    node.labels_mut().insert(labels::MACHINE_NAME, "another");
    node.spec.provider_id = "cloud:///9".to_owned();
    snapshot.node = TargetNodeView::Present(Arc::new(node));
}

#[rstest]
#[case::listed(as_it_is, None)]
#[case::of_a_machine_that_lives(
    |it: &mut Snapshot| edit(it, |machine| machine.metadata.deletion_timestamp = None),
    Some("it would drain a node whose machine stays: pod ns/a would be removed, and the machine is not being deleted")
)]
#[case::not_listed(
    |it: &mut Snapshot| it.learned.pods = PodsView::Listed(vec![pod("b")]),
    Some("it would act on unknown facts: pod ns/a was not listed")
)]
#[case::on_another_one_s_node(
    of_another_machine,
    Some("it would change an object of another owner: pod ns/a is not on a node of this machine")
)]
fn pods_are_evicted_from_the_own_node_of_a_terminating_machine(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = World::running().snapshot();
    terminating(&mut snapshot, "Initiate node drain");
    snapshot.learned.pods = PodsView::Listed(vec![pod("a")]);
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, Action::EvictPod(pod("a").pod)).as_deref(), refused);
    assert_eq!(refusal(&snapshot, Action::DeletePod(pod("a").pod)).as_deref(), refused);
}

#[test]
fn a_pod_of_the_last_list_may_be_deleted_before_the_next_but_not_evicted() {
    let mut snapshot = World::running().snapshot();
    terminating(&mut snapshot, "Initiate node drain");
    snapshot.memory.listed = vec![pod("a").pod];
    assert_eq!(refusal(&snapshot, Action::DeletePod(pod("a").pod)), None);
    assert!(refusal(&snapshot, Action::DeletePod(pod("b").pod)).is_some());
    assert!(refusal(&snapshot, Action::EvictPod(pod("a").pod)).is_some());
}

#[rstest]
#[case::of_a_machine_that_goes(|it: &mut Snapshot| terminating(it, ""), None)]
#[case::of_a_machine_that_lives(
    as_it_is,
    Some("it would drain a node whose machine stays: node n would be cordoned, and the machine is not being deleted")
)]
#[case::of_another_machine(|it: &mut Snapshot| { terminating(it, ""); of_another_machine(it); }, Some("it would change an object of another owner: node n does not belong to this machine"))]
fn the_own_node_of_a_terminating_machine_is_cordoned(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = World::running().snapshot();
    change(&mut snapshot);
    let (node, patch) = (own_node(&snapshot), json!({}));
    let announce = Action::PatchNodeStatus { node: node.clone(), patch: patch.clone(), purpose: NodeWrite::Announce };
    let cordon = Action::StrategicPatchNode { node: node.clone(), patch: patch.clone(), purpose: NodeWrite::Cordon };
    for action in [announce, cordon] {
        assert_eq!(refusal(&snapshot, action).as_deref(), refused);
    }
    let sync = Action::PatchNode { node, patch, purpose: NodeWrite::Sync };
    assert_eq!(refusal(&snapshot, sync), None);
}

#[rstest]
#[case::after_the_vm(|it: &mut Snapshot| terminating(it, VM_GONE), None)]
#[case::before_the_vm(|it: &mut Snapshot| terminating(it, DRAINED), Some("it would delete an object that is still in use: node n, and its VM was not deleted"))]
#[case::of_a_machine_that_lives(
    as_it_is,
    Some("it would delete an object that is still in use: node n, and the machine is not being deleted")
)]
#[case::of_another_machine(|it: &mut Snapshot| { terminating(it, VM_GONE); of_another_machine(it); }, Some("it would change an object of another owner: node n does not belong to this machine"))]
fn a_node_is_deleted_after_its_vm(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = World::running().snapshot();
    change(&mut snapshot);
    let node = own_node(&snapshot);
    let release =
        Action::StrategicPatchNode { node: node.clone(), patch: json!({}), purpose: NodeWrite::RemoveFinalizer };
    for action in [release, Action::DeleteNode(node)] {
        assert_eq!(refusal(&snapshot, action).as_deref(), refused);
    }
}

const NO_WAIVER: &str = "it would replace too many unhealthy machines: only an unhealthy machine with the same Node name needs no \
                         replacement permit";

#[rstest]
#[case::dead(MachinePhase::Unknown, true, None)]
#[case::serving(MachinePhase::Running, true, Some(NO_WAIVER))]
#[case::with_another_node(MachinePhase::Unknown, false, Some(NO_WAIVER))]
fn a_permit_is_waived_only_for_a_dead_machine_with_a_conflicting_node(
    #[case] phase: MachinePhase,
    #[case] is_rival: bool,
    #[case] refused: Option<&str>,
) {
    let mut snapshot = creating();
    let mut dead = Machine::clone(&snapshot.machine);
    dead.metadata.uid = Some("dead".to_owned());
    dead.status.get_or_insert_default().current_status.phase = phase;
    let dead = Arc::new(dead);
    snapshot.rivals.readable.extend(is_rival.then(|| Arc::clone(&dead)));
    assert_eq!(refusal(&snapshot, Action::WaivePermit(dead)).as_deref(), refused);
}

/// The own Node, with a progress of its in-place update.
fn updated(snapshot: &mut Snapshot, reason: &str, labels: &[(&str, &str)]) {
    let mut node = (*own_node(snapshot)).clone();
    let condition = json!({ "type": "InPlaceUpdate", "status": "True", "reason": reason });
    node.status.conditions.push(serde_json::from_value(condition).unwrap());
    for (key, value) in labels {
        node.labels_mut().insert(*key, *value);
    }
    snapshot.node = TargetNodeView::Present(Arc::new(node));
}

#[rstest]
#[case("SelectedForUpdate", true)]
#[case("CandidateForUpdate", false)]
#[case("ReadyForUpdate", false)]
fn pods_go_from_a_node_that_is_selected_for_an_in_place_update(#[case] reason: &str, #[case] accepted: bool) {
    let mut snapshot = World::running().snapshot();
    updated(&mut snapshot, reason, &[]);
    snapshot.learned.pods = PodsView::Listed(vec![pod("a")]);
    assert_eq!(refusal(&snapshot, Action::EvictPod(pod("a").pod)).is_none(), accepted);
    let (node, patch) = (own_node(&snapshot), json!({}));
    let cordon = Action::StrategicPatchNode { node, patch, purpose: NodeWrite::Cordon };
    assert_eq!(refusal(&snapshot, cordon).is_none(), accepted);
}

const UNDRAINED_UPDATE: &str =
    "it would drain a node whose machine stays: node n would be updated, and it was not drained";

#[rstest]
#[case::drained("SelectedForUpdate", "DrainSuccessful", as_it_is, None)]
#[case::pods_are_not_known("SelectedForUpdate", "DrainSuccessful", |it: &mut Snapshot| it.learned.pods = PodsView::NotListed, Some(UNDRAINED_UPDATE))]
#[case::the_machine_does_not_show_it("SelectedForUpdate", "DrainSuccessful", |it: &mut Snapshot| set_phase(it, MachinePhase::Running), Some(UNDRAINED_UPDATE))]
#[case::not_selected("CandidateForUpdate", "DrainSuccessful", as_it_is, Some(UNDRAINED_UPDATE))]
#[case::ready("DrainSuccessful", "ReadyForUpdate", as_it_is, None)]
#[case::ready_too_early("SelectedForUpdate", "ReadyForUpdate", as_it_is, Some(UNDRAINED_UPDATE))]
#[case::others_disturb_nobody("ReadyForUpdate", "UpdateFailed", as_it_is, None)]
#[case::of_another_machine(
    "DrainSuccessful",
    "ReadyForUpdate",
    of_another_machine,
    Some("it would change an object of another owner: node n does not belong to this machine")
)]
fn the_agent_gets_a_node_that_is_drained(
    #[case] before: &str,
    #[case] after: &str,
    #[case] change: Change,
    #[case] refused: Option<&str>,
) {
    let mut snapshot = World::running().snapshot();
    updated(&mut snapshot, before, &[]);
    snapshot.learned.pods = PodsView::Listed(Vec::new());
    set_phase(&mut snapshot, MachinePhase::InPlaceUpdating);
    change(&mut snapshot);
    let patch = json!({ "status": { "conditions": [{ "type": "InPlaceUpdate", "reason": after }] } });
    let action = Action::PatchNodeStatus { node: own_node(&snapshot), patch, purpose: NodeWrite::InPlaceUpdate };
    assert_eq!(refusal(&snapshot, action).as_deref(), refused);
}

#[rstest]
#[case::the_agent_says_so(|it: &mut Snapshot| updated(it, "ReadyForUpdate", &[(labels::UPDATE_RESULT, "failed")]), None)]
#[case::too_early(
    as_it_is,
    Some(
        "it would fail a machine before its timeout: inPlaceUpdateTimeout 20m0s ends at 2027-01-15T08:20:13Z, now is 2027-01-15T08:00:13Z"
    )
)]
#[case::its_node_was_not_read(|it: &mut Snapshot| it.now = at(9999), Some("it would act on unknown facts: node n was not read live in this reconcile"))]
#[case::its_node_is_gone(|it: &mut Snapshot| { it.now = at(9999); it.node = TargetNodeView::Absent; }, None)]
fn an_in_place_update_fails_for_a_reason(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = World::running().snapshot();
    set_phase(&mut snapshot, MachinePhase::InPlaceUpdating);
    let now = snapshot.now;
    edit_status(&mut snapshot, |status| status.current_status.last_update_time = Some(now.into()));
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, status(MachinePhase::InPlaceUpdateFailed, "")).as_deref(), refused);
}

/// A Machine that failed and is preserved. Its Node is tainted, and its pods are listed.
fn preserved() -> Snapshot {
    let mut snapshot = World::running().snapshot();
    set_phase(&mut snapshot, MachinePhase::Failed);
    edit_status(&mut snapshot, |status| status.current_status.preserve_expiry_time = Some(at(9999).into()));
    ask(&mut snapshot, "now");
    change_node(&mut snapshot, |node| {
        let taint = json!([{ "key": labels::PRESERVED_TAINT, "effect": "NoSchedule" }]);
        node.spec.taints = serde_json::from_value(taint).unwrap();
    });
    snapshot.learned.pods = PodsView::Listed(vec![pod("a")]);
    snapshot
}

fn ask(snapshot: &mut Snapshot, word: &str) {
    edit(snapshot, |machine| {
        machine.metadata.annotations.get_or_insert_default().insert(labels::PRESERVE.to_owned(), word.to_owned());
    });
}

fn change_node(snapshot: &mut Snapshot, change: impl FnOnce(&mut Node)) {
    let mut node = (*own_node(snapshot)).clone();
    change(&mut node);
    snapshot.node = TargetNodeView::Present(Arc::new(node));
}

fn untainted(snapshot: &mut Snapshot) {
    change_node(snapshot, |node| node.spec.taints.clear());
}

const STAYS: &str =
    "it would drain a node whose machine stays: pod ns/a would be removed, and the machine is not being deleted";

#[rstest]
#[case::that_failed(as_it_is, None)]
#[case::that_runs(|it: &mut Snapshot| set_phase(it, MachinePhase::Running), Some(STAYS))]
#[case::that_is_not_preserved(|it: &mut Snapshot| edit_status(it, |status| status.current_status.preserve_expiry_time = None), Some(STAYS))]
#[case::that_is_not_preserved_any_more(|it: &mut Snapshot| it.now = at(9999), Some(STAYS))]
#[case::whose_node_gets_new_pods(untainted, Some(STAYS))]
#[case::with_another_one_s_node(of_another_machine, Some(STAYS))]
fn pods_go_from_the_closed_node_of_a_preserved_machine(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = preserved();
    change(&mut snapshot);
    assert_eq!(refusal(&snapshot, Action::EvictPod(pod("a").pod)).as_deref(), refused);
}

#[rstest]
#[case::as_it_is(as_it_is, None)]
#[case::of_a_machine_that_is_not_preserved(
    |it: &mut Snapshot| edit_status(it, |status| status.current_status.preserve_expiry_time = None),
    Some("it would change an object of another owner: the machine of node n is not preserved")
)]
#[case::of_a_machine_that_goes(
    |it: &mut Snapshot| terminating(it, ""),
    Some("it would change an object of another owner: the machine of node n is not preserved")
)]
#[case::of_another_machine(
    of_another_machine,
    Some("it would change an object of another owner: node n does not belong to this machine")
)]
fn the_own_node_of_a_preserved_machine_shows_it(#[case] change: Change, #[case] refused: Option<&str>) {
    let mut snapshot = preserved();
    change(&mut snapshot);
    let (node, patch) = (own_node(&snapshot), json!({}));
    for purpose in [NodeWrite::Preserve, NodeWrite::TellPreserved, NodeWrite::TellDrained, NodeWrite::EndPreservation] {
        let action = Action::PatchNode { node: node.clone(), patch: patch.clone(), purpose };
        assert_eq!(refusal(&snapshot, action).as_deref(), refused);
    }
    snapshot.learned.pods = PodsView::NotListed;
    let text = "it would act on unknown facts: node n would be shown as drained, and its pods were not listed";
    let action = Action::PatchNodeStatus { node, patch, purpose: NodeWrite::TellDrained };
    assert_eq!(refusal(&snapshot, action).as_deref(), refused.or(Some(text)));
}

const UNKNOWN_NODE: &str = "it would act on unknown facts: it ends a preservation, and node n may exist";
const ASKED: &str = "it would end a preservation: now asks for it until 2027-01-15T10:46:39Z";

#[rstest]
#[case::asked_for(untainted, Some(ASKED))]
#[case::expired(|it: &mut Snapshot| { untainted(it); it.now = at(9999); }, None)]
#[case::not_asked_for(|it: &mut Snapshot| { untainted(it); ask(it, "false"); }, None)]
#[case::asked_for_another_phase(|it: &mut Snapshot| { untainted(it); ask(it, "when-failed"); set_phase(it, MachinePhase::Running); }, None)]
#[case::refused_by_the_node(
    |it: &mut Snapshot| {
        untainted(it);
        change_node(it, |node| drop(node.annotations_mut().insert(labels::PRESERVE, "false")));
    },
    None
)]
#[case::shown_by_the_node(|it: &mut Snapshot| it.now = at(9999), Some("it would end a preservation: node n still shows it"))]
#[case::its_node_is_unknown(|it: &mut Snapshot| { it.now = at(9999); it.node = TargetNodeView::Unknown; }, Some(UNKNOWN_NODE))]
#[case::its_node_is_missing_in_the_cache(|it: &mut Snapshot| { it.now = at(9999); it.node = TargetNodeView::Missing; }, Some(UNKNOWN_NODE))]
#[case::its_node_is_gone(|it: &mut Snapshot| { it.now = at(9999); it.node = TargetNodeView::Absent; }, None)]
#[case::it_is_deleted(|it: &mut Snapshot| terminating(it, ""), None)]
fn a_preservation_ends_when_nothing_asks_for_it_and_its_node_is_as_before(
    #[case] change: Change,
    #[case] refused: Option<&str>,
) {
    let mut snapshot = preserved();
    change(&mut snapshot);
    let phase = snapshot.machine.phase();
    assert_eq!(refusal(&snapshot, status(phase, "")).as_deref(), refused);
}
