//! The meltdown guard: limits how many unhealthy Machines of one MachineDeployment, or of one zone, are replaced at the
//! same time.
//!
//! If a zone fails, or the connection to it, all its Machines look unhealthy at the same time. Replacing them all would
//! turn a disturbance into an outage, so the next replacement waits until the previous one is Running. The [`Limits`] are
//! `unhealthy_replacements` of the machine policy. Creation timeouts are not guarded, because such a Machine was never
//! available.

use std::{fmt, str::FromStr};

use mcm_api::{
    labels,
    machine::{Machine, MachinePhase},
};

/// How many Machines of a group may be out of service before no further one is replaced, at least one. The default is the
/// reference's fixed number for a deployment, 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementLimit {
    /// That many.
    Machines(u32),
    /// That many of a hundred, rounded down.
    Percent(u32),
}

/// A value that cannot be parsed as a [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a number of machines (1 or more) or a percentage (1% to 100%)")]
pub struct InvalidLimit;

impl ReplacementLimit {
    fn scaled_value(self, machines: u32) -> u32 {
        match self {
            Self::Machines(count) => count,
            Self::Percent(percent) => (u64::from(machines) * u64::from(percent) / 100).try_into().unwrap_or(u32::MAX),
        }
        .max(1)
    }
}

impl Default for ReplacementLimit {
    fn default() -> Self {
        Self::Machines(1)
    }
}

impl fmt::Display for ReplacementLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machines(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl FromStr for ReplacementLimit {
    type Err = InvalidLimit;

    fn from_str(text: &str) -> Result<Self, InvalidLimit> {
        let (number, limit, range): (_, fn(u32) -> Self, _) = match text.strip_suffix('%') {
            Some(percent) => (percent, Self::Percent, 1..=100),
            None => (text, Self::Machines, 1..=u32::MAX),
        };
        let number = number.parse().ok().filter(|number| range.contains(number));
        number.map(limit).ok_or(InvalidLimit)
    }
}

/// The limits that hold, all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeltdownLimits {
    /// For the Machines of a deployment.
    pub per_deployment: ReplacementLimit,
    /// For the Machines in a zone, of all deployments. The reference lacks it.
    pub per_zone: Option<ReplacementLimit>,
}

impl MeltdownLimits {
    /// The permits that the replacement of a Machine needs. Without any it is not guarded.
    pub fn permits_of(&self, machine: &Machine) -> Vec<PermitKey> {
        let zone = self.per_zone.and_then(|_| MeltdownGroup::zone_of(machine));
        let groups = [MeltdownGroup::deployment_of(machine), zone].into_iter().flatten();
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        groups.map(|group| PermitKey { namespace: namespace.clone(), group }).collect()
    }

    /// The limit of a group.
    pub fn group_limit(&self, group: &MeltdownGroup) -> ReplacementLimit {
        match group {
            MeltdownGroup::Deployment(_) => self.per_deployment,
            MeltdownGroup::Zone(_) => self.per_zone.unwrap_or_default(),
        }
    }
}

/// How many names an explanation lists.
const NAMES: usize = 3;

/// Machines of which few may be out of service at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MeltdownGroup {
    /// Machines with this value of the label [`labels::DEPLOYMENT_NAME`].
    Deployment(String),
    /// Machines whose Nodes get this value of the label [`labels::ZONE`].
    Zone(String),
}

impl MeltdownGroup {
    fn deployment_of(machine: &Machine) -> Option<Self> {
        machine.metadata.labels.as_ref()?.get(labels::DEPLOYMENT_NAME).cloned().map(Self::Deployment)
    }

    fn zone_of(machine: &Machine) -> Option<Self> {
        machine.spec.node_template.metadata.labels.get(labels::ZONE).cloned().map(Self::Zone)
    }
}

impl fmt::Display for MeltdownGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deployment(name) => f.write_str(name),
            Self::Zone(zone) => write!(f, "zone {zone}"),
        }
    }
}

/// The scope of a permit: a group of Machines in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitKey {
    pub namespace: String,
    pub group: MeltdownGroup,
}

/// How many Machines with the same [`PermitKey`] are out of service, and which, including the Machine itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfService {
    group: MeltdownGroup,
    /// All Machines, in service or not.
    machines: u32,
    weight: u32,
    blockers: Vec<String>,
}

/// The permit to replace a Machine, in all its groups. Only one Machine of a group holds it at a time, while the others
/// are
/// counted and its status is written. The executor keeps the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReplacementPermit {
    /// Not requested in this reconcile.
    #[default]
    NotAsked,
    /// No other Machine holds it, and few enough are out of service: it can be taken.
    Free,
    /// This Machine holds it; the others of each group were counted after it was taken.
    Held(Vec<OutOfService>),
    /// Another Machine holds it.
    Refused {
        /// Name of that Machine.
        by: String,
    },
}

impl ReplacementPermit {
    /// The state after a read of the permit: if it could be taken, it is [`Permit::Free`] and not held.
    pub fn seen(self, limits: &MeltdownLimits) -> Self {
        if self.awaits(limits).is_none() { Self::Free } else { self }
    }

    /// The reason why the Machine is not replaced yet, apart from the permit; `None` if it may be replaced.
    pub fn awaits(&self, limits: &MeltdownLimits) -> Option<String> {
        match self {
            Self::NotAsked | Self::Free => None,
            Self::Refused { by } => Some(format!("a replacement permit: machine {by} holds it")),
            Self::Held(groups) => groups.iter().find_map(|group| {
                let (blockers, name) = (group.blocked_by(limits)?, group.group());
                Some(format!("a replacement permit: machines of {name} are out of service: {blockers}"))
            }),
        }
    }
}

impl PermitKey {
    /// The group contains the Machine.
    pub fn is_of(&self, machine: &Machine) -> bool {
        let group = match &self.group {
            MeltdownGroup::Deployment(_) => MeltdownGroup::deployment_of(machine),
            MeltdownGroup::Zone(_) => MeltdownGroup::zone_of(machine),
        };
        machine.metadata.namespace.as_deref().unwrap_or_default() == self.namespace
            && group.as_ref() == Some(&self.group)
    }
}

/// The groups of some permits, for users.
pub fn names(permits: &[PermitKey]) -> String {
    permits.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

impl fmt::Display for PermitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group.fmt(f)
    }
}

impl OutOfService {
    /// Counts the Machines of one key and ignores others.
    pub fn for_key<'a>(key: &PermitKey, machines: impl IntoIterator<Item = &'a Machine>) -> Self {
        let mut count = Self { group: key.group.clone(), machines: 0, weight: 0, blockers: Vec::new() };
        machines.into_iter().filter(|machine| key.is_of(machine)).for_each(|machine| count.add(machine));
        count.blockers.sort();
        count.blockers.truncate(NAMES);
        count
    }

    fn add(&mut self, machine: &Machine) {
        let weight = weight_of(machine);
        self.machines = self.machines.saturating_add(1);
        self.weight = self.weight.saturating_add(weight);
        if weight > 0 {
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let phase = machine.phase();
            let phase = match &phase {
                _ if machine.is_terminating() => "Terminating",
                MachinePhase::New => "not created yet",
                phase => phase.as_str(),
            };
            self.blockers.push(format!("{name} ({phase})"));
        }
    }

    /// The group whose Machines were counted.
    pub fn group(&self) -> &MeltdownGroup {
        &self.group
    }

    /// The Machines because of which no further one may be replaced; `None` if one may.
    pub fn blocked_by(&self, limits: &MeltdownLimits) -> Option<String> {
        (self.weight >= limits.group_limit(&self.group).scaled_value(self.machines)).then(|| {
            let more = if self.blockers.len() == NAMES { ", …" } else { "" };
            format!("{}{more}", self.blockers.join(", "))
        })
    }
}

/// Running, Unknown and preserved Machines are in service. So is one whose in-place update failed, until it is given up: two
/// of them would wait for each other for ever. A terminating one, by phase or deletion timestamp, counts twice, because its
/// replacement does not exist yet.
fn weight_of(machine: &Machine) -> u32 {
    let preserved = machine.status.as_ref().is_some_and(|status| status.current_status.preserve_expiry_time.is_some());
    let is_terminating = machine.is_terminating();
    let waits_or_serves =
        matches!(machine.phase(), MachinePhase::Running | MachinePhase::Unknown | MachinePhase::InPlaceUpdateFailed);
    let serves = waits_or_serves && !is_terminating;
    u32::from(!serves && !preserved) + u32::from(is_terminating)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn machine(name: &str, phase: &str, preserved: bool) -> Machine {
        let expiry = preserved.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name, "namespace": "ns", "labels": { "name": "pool" } },
            "spec": {}, "status": { "currentStatus": { "phase": phase, "preserveExpiryTime": expiry } },
        }))
        .unwrap()
    }

    fn count(machines: &[Machine]) -> OutOfService {
        let group = MeltdownGroup::Deployment("pool".to_owned());
        OutOfService::for_key(&PermitKey { namespace: "ns".to_owned(), group }, machines)
    }

    #[rstest]
    #[case::all_in_service(&[("Running", false), ("Unknown", false)], 0)]
    #[case::waiting_to_be_given_up(&[("InPlaceUpdateFailed", false), ("InPlaceUpdateFailed", false)], 0)]
    #[case::being_created(&[("Running", false), ("", false)], 1)]
    #[case::joining(&[("Pending", false)], 1)]
    #[case::given_up_already(&[("Failed", false)], 1)]
    #[case::preserved_ones_are_not_replaced(&[("Failed", true)], 0)]
    #[case::terminating_counts_twice(&[("Terminating", false)], 2)]
    #[case::terminating_and_preserved_counts_once(&[("Terminating", true)], 1)]
    #[case::other_phases_block(&[("CrashLoopBackOff", false), ("InPlaceUpdating", false), ("Available", false)], 3)]
    fn counts_what_is_out_of_service(#[case] phases: &[(&str, bool)], #[case] weight: u32) {
        let machines: Vec<Machine> = phases.iter().map(|(phase, preserved)| machine("m", phase, *preserved)).collect();
        assert_eq!(count(&machines).weight, weight);
    }

    #[test]
    fn one_machine_may_be_given_up_only_while_none_is_out_of_service() {
        let healthy = [machine("a", "Running", false), machine("b", "Unknown", false)];
        assert_eq!(count(&healthy).blocked_by(&MeltdownLimits::default()), None);
        let joining = [machine("a", "Unknown", false), machine("b", "Pending", false)];
        assert_eq!(count(&joining).blocked_by(&MeltdownLimits::default()).as_deref(), Some("b (Pending)"));
    }

    #[rstest]
    #[case::a_number("2", 1, 2)]
    #[case::and_another("3", 2, 4)]
    #[case::a_percentage("25%", 2, 12)]
    #[case::is_rounded_down("25%", 0, 7)]
    #[case::and_one_is_always_allowed("1%", 0, 7)]
    fn a_limit_is_a_number_or_a_percentage(#[case] limit: &str, #[case] allowed: usize, #[case] machines: usize) {
        let limit: ReplacementLimit = limit.parse().unwrap();
        let out_of_service = |count_of: usize| {
            let phase = |index: usize| if index < count_of { "Pending" } else { "Running" };
            let all: Vec<Machine> = (0..machines).map(|index| machine("m", phase(index), false)).collect();
            count(&all).blocked_by(&MeltdownLimits { per_deployment: limit, per_zone: None })
        };
        assert_eq!(out_of_service(allowed), None, "one more may be replaced");
        assert!(out_of_service(allowed + 1).is_some());
    }

    #[rstest]
    fn nothing_else_is_a_limit(#[values("", "0", "0%", "101%", "-1", "1.5", "%", "ten")] text: &str) {
        assert_eq!(text.parse::<ReplacementLimit>(), Err(InvalidLimit));
    }

    #[test]
    fn the_explanation_names_a_few_machines_in_order() {
        let machines: Vec<Machine> = ["e", "d", "c", "b"].iter().map(|name| machine(name, "", false)).collect();
        let text = count(&machines).blocked_by(&MeltdownLimits::default()).unwrap();
        assert_eq!(text, "b (not created yet), c (not created yet), d (not created yet), …");
    }

    #[rstest]
    #[case::running("Running", false, 2)]
    #[case::unknown("Unknown", false, 2)]
    #[case::preserved("Failed", true, 1)]
    #[case::phase_says_so_too("Terminating", false, 2)]
    fn a_machine_with_a_deletion_timestamp_terminates_whatever_its_phase(
        #[case] phase: &str,
        #[case] preserved: bool,
        #[case] weight: u32,
    ) {
        let mut machine = machine("m", phase, preserved);
        machine.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH.into());
        let count = count(&[machine]);
        assert_eq!(
            (count.weight, count.blocked_by(&MeltdownLimits::default()).as_deref()),
            (weight, Some("m (Terminating)"))
        );
    }

    #[test]
    fn machines_of_other_namespaces_and_deployments_do_not_count() {
        let (mut elsewhere, mut other) = (machine("m", "Failed", false), machine("m", "Failed", false));
        elsewhere.metadata.namespace = Some("elsewhere".to_owned());
        other.metadata.labels.as_mut().unwrap().insert("name".to_owned(), "other".to_owned());
        assert_eq!(count(&[elsewhere, other]).weight, 0);
    }

    fn in_zone(name: &str, deployment: &str, phase: &str, zone: &str) -> Machine {
        let mut machine = machine(name, phase, false);
        machine.metadata.labels.as_mut().unwrap().insert("name".to_owned(), deployment.to_owned());
        let zone = (labels::ZONE.to_owned(), zone.to_owned());
        machine.spec.node_template.metadata.labels.extend([zone]);
        machine
    }

    #[test]
    fn in_a_zone_the_machines_of_all_deployments_count() {
        let limits = MeltdownLimits { per_zone: Some(ReplacementLimit::Machines(2)), ..MeltdownLimits::default() };
        let sick = in_zone("a", "a", "Unknown", "1");
        let others = [
            in_zone("b", "b", "Pending", "1"),
            in_zone("elsewhere", "b", "Pending", "2"),
            machine("nowhere", "Pending", false),
        ];
        let permit = |others: &[Machine]| {
            let all = || others.iter().chain([&sick]);
            ReplacementPermit::Held(
                limits.permits_of(&sick).iter().map(|key| OutOfService::for_key(key, all())).collect(),
            )
        };
        assert_eq!(permit(&others).awaits(&limits), None, "one of the zone, and the limit is two");
        let more = [others[0].clone(), in_zone("c", "c", "Pending", "1")];
        assert_eq!(
            permit(&more).awaits(&limits).as_deref(),
            Some("a replacement permit: machines of zone 1 are out of service: b (Pending), c (Pending)")
        );
        let own = [in_zone("d", "a", "Pending", "1")];
        assert_eq!(
            permit(&own).awaits(&limits).as_deref(),
            Some("a replacement permit: machines of a are out of service: d (Pending)"),
            "the limit of the deployment holds, too"
        );
    }

    #[test]
    fn without_a_limit_for_zones_only_the_deployment_counts() {
        let names = |limits: MeltdownLimits| {
            let keys = limits.permits_of(&in_zone("a", "pool", "Unknown", "1"));
            keys.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(names(MeltdownLimits::default()), ["pool"]);
        assert_eq!(
            names(MeltdownLimits { per_zone: Some(ReplacementLimit::Percent(5)), ..MeltdownLimits::default() }),
            ["pool", "zone 1"]
        );
    }
}
