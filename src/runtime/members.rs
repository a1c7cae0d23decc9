//! Replicas that share the namespaces of a control cluster: the members of a fleet, and their names. Pure.
//!
//! A process is a member while it renews a Lease of its fleet (`leader/membership.rs`). A member that was silent is expelled: another
//! member empties the holder of its Lease. The name of a process is random and never used again, so an expelled member stays
//! expelled, and a claim with its name is free. `docs/architecture.md` has the reasons.

pub mod observed;
pub mod share;
pub mod standing;

use std::time::Duration;

/// Silence after which a member is expelled. Stored in its Lease.
pub const EXPELLED_AFTER: Duration = Duration::from_secs(15);
/// How long a member may act after it sent its last successful renewal.
pub const VALID_FOR: Duration = Duration::from_secs(10);
/// Time between two renewals of a membership.
pub const RENEWAL: Duration = Duration::from_secs(5);
/// Time between two looks at the members.
pub const LOOK: Duration = Duration::from_secs(1);
/// How long after the end of a member its claims stay, if calls of it may still have an effect.
pub const SETTLES: Duration = EXPELLED_AFTER;

const _: () = {
    let send_again = RENEWAL.as_secs() + LOOK.as_secs();
    assert!(send_again < VALID_FOR.as_secs(), "a renewal that fails once is repeated in time");
    assert!(VALID_FOR.as_secs() * 3 <= EXPELLED_AFTER.as_secs() * 2, "clocks may run at rates that differ by half");
};

/// The start of the names of Leases of members.
const PREFIX: &str = "mcm-fleet-";
/// Longest name of a fleet: it is a part of the name of a Lease, and a value of a label.
const LONGEST_NAME: usize = 40;

/// A fleet: the namespace of the Leases of its members, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetName {
    /// The namespace in the control cluster.
    pub namespace: String,
    /// The name, which tells fleets in one namespace apart.
    pub name: String,
}

impl FleetName {
    /// The Lease of one member at a time.
    pub fn lease_name(&self, slot: u32) -> String {
        format!("{PREFIX}{}-{slot:08x}", self.name)
    }

    /// The name of a process in its Lease and in the claims of namespaces. It has the form of the names of this program.
    pub fn identity(&self, host: &str, lease: &str, process: u128) -> String {
        format!("{host}@{}/{lease}_{process:032x}", self.namespace)
    }

    /// The Lease of a holder that is or was a member of this fleet.
    pub fn lease_of<'a>(&self, holder: &'a str) -> Option<&'a str> {
        let member = MemberIdentity::parse(holder)?;
        (member.namespace == self.namespace && self.has(member.lease)).then_some(member.lease)
    }

    /// A Lease is that of a member of this fleet.
    pub fn has(&self, lease: &str) -> bool {
        let slot = lease.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix(&self.name)?.strip_prefix('-'));
        slot.is_some_and(|slot| slot.len() == 8 && is_hex(slot))
    }
}

/// A name is a part of the name of a Lease, and a value of a label.
pub fn is_fleet_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The parts of the name of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberIdentity<'a> {
    /// The host of the process: the name of its pod.
    pub host: &'a str,
    /// The namespace of its Lease.
    pub namespace: &'a str,
    /// The name of its Lease.
    pub lease: &'a str,
}

impl<'a> MemberIdentity<'a> {
    /// The parts of a holder; `None` if it is no member of any fleet.
    pub fn parse(holder: &'a str) -> Option<Self> {
        let (rest, process) = holder.rsplit_once('_')?;
        let (host, place) = rest.split_once('@')?;
        let (namespace, lease) = place.split_once('/')?;
        let is_member = process.len() == 32 && is_hex(process) && lease.starts_with(PREFIX);
        is_member.then_some(Self { host, namespace, lease })
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn fleet(name: &str) -> FleetName {
        FleetName { namespace: "mcm-system".to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_holder_names_its_replica_and_the_lease_of_its_membership() {
        let fleet = fleet("one");
        let lease = fleet.lease_name(0xab);
        assert_eq!(lease, "mcm-fleet-one-000000ab");
        let holder = fleet.identity("mcm-fleet-7d9c-x2x9k", &lease, 7);
        let member = MemberIdentity::parse(&holder).unwrap();
        assert_eq!((member.host, member.namespace), ("mcm-fleet-7d9c-x2x9k", "mcm-system"));
        assert_eq!(fleet.lease_of(&holder), Some(lease.as_str()));
    }

    /// A member of another fleet is respected like a Go program: its Lease is not looked at.
    #[rstest]
    #[case::another_fleet("host@mcm-system/mcm-fleet-one-two-000000ab_00000000000000000000000000000007")]
    #[case::another_namespace("host@other/mcm-fleet-one-000000ab_00000000000000000000000000000007")]
    #[case::a_cell("mcm-cell-mcm-system_00000000000000000000000000000007")]
    #[case::a_single_process("mcm-fleet-one-000000ab_00000000000000000000000000000007")]
    #[case::a_go_program("host_2f1c9e3a-7b1d-4c59-9a52-0d7e5f3c1b11")]
    #[case::no_process("host@mcm-system/mcm-fleet-one-000000ab_7")]
    #[case::no_slot("host@mcm-system/mcm-fleet-one-0000_00000000000000000000000000000007")]
    fn other_holders_are_no_members(#[case] holder: &str) {
        assert_eq!(fleet("one").lease_of(holder), None);
    }

    #[rstest]
    #[case("default", true)]
    #[case("a-1", true)]
    #[case("", false)]
    #[case("-a", false)]
    #[case("A", false)]
    #[case("a.b", false)]
    #[case("aaaaaaaaaabbbbbbbbbbccccccccccddddddddddx", false)]
    fn the_name_of_a_fleet_fits_into_that_of_a_lease(#[case] name: &str, #[case] fits: bool) {
        assert_eq!(is_fleet_name(name), fits);
    }
}
