//! The control planes of a cluster: the process that serves each, and the trouble of each. Pure.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    manager::ManagerLease,
    terminal::{ago, short},
};
use mcm_rules::plan::counted;

/// The Leases of a control plane: both roles have to be led.
const LEASES: [&str; 2] = ["machine-controller", "machine-controller-manager"];

/// The facts about one control plane. A list that could not be read is `None`.
#[derive(Clone, Debug, Default)]
pub struct PlaneFacts {
    /// The replicas of its Deployment `machine-controller-manager`, if it has one.
    pub replicas: Option<Option<i32>>,
    /// The Leases of its managers that exist.
    pub leases: Vec<ManagerLease>,
    /// Its Machines.
    pub machines: Option<MachineCount>,
}

/// The Machines of a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineCount {
    /// All of them.
    pub total: u32,
    /// Machines in phase Running that are not being deleted.
    pub running: u32,
}

/// The state of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum PlaneState {
    /// No process renews one of its Leases.
    Unled,
    /// Its Machines are frozen: one of its API servers cannot be reached.
    Frozen,
    /// It has Machines and no Lease, or the replicas of its Deployment could not be read.
    Unknown,
    /// Its Deployment has no replicas, so nothing is done in it.
    Parked,
    /// A process holds its Leases.
    Led,
}

impl PlaneState {
    /// A user has to look at it.
    pub const fn is_trouble(self) -> bool {
        matches!(self, Self::Unled | Self::Frozen | Self::Unknown)
    }
}

impl fmt::Display for PlaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unled => "no manager",
            Self::Frozen => "frozen",
            Self::Unknown => "unknown",
            Self::Parked => "parked",
            Self::Led => "led",
        })
    }
}

/// The control planes of a cluster.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetAnswer {
    /// The control planes. Trouble comes first.
    pub planes: Vec<PlaneAnswer>,
    /// Kinds that could not be listed, with the reason.
    pub unread: Vec<String>,
}

/// A control plane with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaneAnswer {
    /// Its namespace.
    pub namespace: String,
    /// Its state.
    pub state: PlaneState,
    /// The holders of its Leases, without the ends that only tell processes apart.
    pub owners: Vec<String>,
    /// Its Machines; absent if they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachineCount>,
    /// The reason of the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its managers, as their Leases show them.
    pub managers: Vec<ManagerLease>,
}

/// The name in a Lease is that of a process of mcm.
pub type IsOwn = fn(&str) -> bool;

/// The control planes. Trouble comes first.
pub fn answers(planes: &BTreeMap<String, PlaneFacts>, is_own: IsOwn, now: Timestamp) -> Vec<PlaneAnswer> {
    let mut answers: Vec<PlaneAnswer> =
        planes.iter().map(|(namespace, facts)| answer(namespace, facts, is_own, now)).collect();
    answers.sort_by(|one, other| (one.state, &one.namespace).cmp(&(other.state, &other.namespace)));
    answers
}

fn answer(namespace: &str, facts: &PlaneFacts, is_own: IsOwn, now: Timestamp) -> PlaneAnswer {
    let (state, reason) = state(facts, is_own, now);
    let mut owners: Vec<String> =
        facts.leases.iter().filter(|lease| lease.is_alive(now)).map(|lease| owner(&lease.holder, is_own)).collect();
    owners.sort();
    owners.dedup();
    PlaneAnswer {
        namespace: namespace.to_owned(),
        state,
        owners,
        machines: facts.machines,
        reason,
        managers: facts.leases.clone(),
    }
}

fn state(facts: &PlaneFacts, is_own: IsOwn, now: Timestamp) -> (PlaneState, Option<String>) {
    if let Some(Some(0)) = facts.replicas {
        return (PlaneState::Parked, Some("its Deployment has 0 replicas".to_owned()));
    }
    if let Some(lease) = facts.leases.iter().find(|lease| lease.is_gone(now)) {
        let silent = match lease.renewed {
            Some(at) => format!(" renewed {} ago", ago(now, at)),
            None => ", which has ended".to_owned(),
        };
        let text = match lease.holder.as_str() {
            "" => format!("no process holds Lease {}", lease.lease),
            holder => format!("Lease {} of {}{silent}", lease.lease, owner(holder, is_own)),
        };
        return match facts.replicas {
            // It may be parked.
            None => (PlaneState::Unknown, Some(format!("{text}; its Deployment could not be read"))),
            Some(_) => (PlaneState::Unled, Some(text)),
        };
    }
    if let [lease] = &facts.leases[..] {
        let missing = LEASES.into_iter().find(|name| *name != lease.lease).unwrap_or_default();
        return (PlaneState::Unled, Some(format!("there is no Lease {missing}, so no manager has the other role")));
    }
    if let Some(freeze) = facts.leases.iter().find_map(|lease| lease.freeze(now)) {
        return (PlaneState::Frozen, Some(format!("for {}: {}", ago(now, freeze.since), short(&freeze.why))));
    }
    if let (true, Some(Some(replicas))) = (facts.leases.is_empty(), facts.replicas) {
        return (
            PlaneState::Unled,
            Some(format!("no Lease, although its Deployment has {}", counted(replicas, "replica"))),
        );
    }
    if facts.leases.is_empty() {
        return (PlaneState::Unknown, Some("no Lease: no manager runs, or one without leader election".to_owned()));
    }
    (PlaneState::Led, None)
}

/// A holder as people recognize it: the host of a process of mcm, which may be a replica of a fleet, the Lease namespace of a cell of
/// several namespaces, and `go:` with the host of any other program.
fn owner(holder: &str, is_own: IsOwn) -> String {
    let Some((name, _)) = holder.rsplit_once('_').filter(|_| is_own(holder)) else {
        return format!("go:{holder}");
    };
    let name = name.split_once('@').map_or(name, |(host, _)| host);
    name.strip_prefix("mcm-cell-").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{manager::ManagerFreeze, testing::held_lease};

    const OWN: &str = "mcm-1_0123456789abcdef0123456789abcdef";

    fn is_own(holder: &str) -> bool {
        holder.ends_with("_0123456789abcdef0123456789abcdef")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(name: &str, holder: &str, renewed: i64) -> ManagerLease {
        held_lease(name, "machines", holder, at(renewed))
    }

    fn both(renewed: i64) -> Vec<ManagerLease> {
        LEASES.map(|name| lease(name, OWN, renewed)).to_vec()
    }

    fn only(facts: PlaneFacts) -> PlaneAnswer {
        answers(&[("n".to_owned(), facts)].into(), is_own, at(1000)).remove(0)
    }

    #[test]
    fn both_leases_are_needed_and_each_has_its_owner() {
        let leases = vec![lease("machine-controller", OWN, 995), lease("machine-controller-manager", "pod-7", 995)];
        let led = only(PlaneFacts { replicas: Some(None), leases, ..PlaneFacts::default() });
        assert_eq!((led.state, led.owners), (PlaneState::Led, vec!["go:pod-7".to_owned(), "mcm-1".to_owned()]));

        let leases = vec![lease("machine-controller", OWN, 995), lease("machine-controller-manager", "pod-7", 700)];
        let unled = only(PlaneFacts { replicas: Some(Some(1)), leases, ..PlaneFacts::default() });
        assert_eq!((unled.state, unled.owners), (PlaneState::Unled, vec!["mcm-1".to_owned()]));
        assert_eq!(unled.reason.unwrap(), "Lease machine-controller-manager of go:pod-7 renewed 5m ago");
    }

    #[test]
    fn a_plane_without_replicas_is_parked_whoever_holds_its_leases() {
        for renewed in [995, 100] {
            let leases = vec![lease("machine-controller", OWN, renewed)];
            let parked = only(PlaneFacts { replicas: Some(Some(0)), leases, ..PlaneFacts::default() });
            assert_eq!(parked.state, PlaneState::Parked);
        }
    }

    #[test]
    fn an_unread_deployment_may_be_the_reason_of_a_dead_lease() {
        let leases = vec![lease("machine-controller", OWN, 100)];
        let unknown = only(PlaneFacts { replicas: None, leases, ..PlaneFacts::default() });
        assert_eq!(unknown.state, PlaneState::Unknown);
        assert_eq!(
            only(PlaneFacts { replicas: None, leases: both(999), ..PlaneFacts::default() }).state,
            PlaneState::Led
        );
        assert_eq!(only(PlaneFacts { replicas: Some(Some(1)), ..PlaneFacts::default() }).state, PlaneState::Unled);
        assert_eq!(only(PlaneFacts { replicas: Some(None), ..PlaneFacts::default() }).state, PlaneState::Unknown);
    }

    #[test]
    fn frozen_machines_are_shown_while_their_manager_lives() {
        let frozen = Some(ManagerFreeze { since: at(760), why: "connect: timeout".to_owned() });
        let mut leases = both(995);
        leases[0].frozen = frozen;
        let answer = only(PlaneFacts { replicas: Some(Some(1)), leases, ..PlaneFacts::default() });
        assert_eq!((answer.state, answer.reason.as_deref()), (PlaneState::Frozen, Some("for 4m: connect: timeout")));
    }

    #[test]
    fn a_plane_with_one_of_its_leases_is_not_led() {
        for replicas in [None, Some(None), Some(Some(1))] {
            let leases = vec![lease("machine-controller", OWN, 995)];
            let half = only(PlaneFacts { replicas, leases, ..PlaneFacts::default() });
            assert_eq!(half.state, PlaneState::Unled);
            let reason = half.reason.unwrap();
            assert!(reason.starts_with("there is no Lease machine-controller-manager"), "{reason}");
        }
    }

    #[test]
    fn a_claim_of_a_replica_has_its_name_and_ends_with_it() {
        let holder = "mcm-fleet-x2x9k@mcm-system/mcm-fleet-one-0000000a_0123456789abcdef0123456789abcdef";
        let mut leases = LEASES.map(|name| lease(name, holder, 995)).to_vec();
        let led = only(PlaneFacts { replicas: Some(None), leases: leases.clone(), ..PlaneFacts::default() });
        assert_eq!((led.state, led.owners), (PlaneState::Led, vec!["mcm-fleet-x2x9k".to_owned()]));
        leases[0].renewed = None;
        let gone = only(PlaneFacts { replicas: Some(None), leases, ..PlaneFacts::default() });
        assert_eq!(gone.state, PlaneState::Unled);
        assert_eq!(gone.reason.unwrap(), "Lease machine-controller of mcm-fleet-x2x9k, which has ended");
    }

    #[test]
    fn a_cell_of_several_namespaces_has_the_name_of_its_lease_namespace() {
        assert_eq!(owner("mcm-cell-mcm-system_0123456789abcdef0123456789abcdef", is_own), "mcm-system");
        assert_eq!(
            owner("host_a6f1c2b4-1111-2222-3333-444455556666", is_own),
            "go:host_a6f1c2b4-1111-2222-3333-444455556666"
        );
    }

    #[test]
    fn planes_that_need_a_user_come_first() {
        let led = |renewed| PlaneFacts { replicas: Some(Some(1)), leases: both(renewed), ..PlaneFacts::default() };
        let planes = [("a".to_owned(), led(995)), ("b".to_owned(), led(1)), ("c".to_owned(), led(996))].into();
        let order: Vec<String> = answers(&planes, is_own, at(1000)).into_iter().map(|one| one.namespace).collect();
        assert_eq!(order, ["b", "a", "c"]);
    }
}
