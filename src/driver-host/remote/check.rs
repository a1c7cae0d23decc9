//! Checks the results of a remote driver before they are used: it is another program, perhaps by another vendor.

use std::time::Duration;

use mcm_api::syntax::is_deceptive;
use mcm_driver::{
    capacity::VmCapacity,
    code::Code,
    error::DriverError,
    inspection::ResourceFinding,
    interface::SecretData,
    spec::ClassProblems,
    vm::{ListedVm, Vm, VmsByProviderId},
};

/// Longer than provider IDs of any cloud.
const LONGEST_ID: usize = 1_024;
/// The limit of Kubernetes for names.
const LONGEST_NAME: usize = 253;
/// A status of a Machine has to hold it, and an object has at most 1.5 MiB.
const LONGEST_STATE: usize = 64 << 10;
/// Messages are stored in statuses and events.
const LONGEST_TEXT: usize = 4 << 10;
const MOST_ADDRESSES: usize = 64;
/// More than any class needs.
const MOST_FINDINGS: usize = 1_000;
/// Between two calls of which the first ended while the cloud works.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));
/// A marker that matches no owner: the VM certainly belongs to another one.
const UNKNOWN_OWNER: &str = "?";
/// So many entries of a list that are wrong are named in the log.
const SHOWN: usize = 5;
/// Shorter values of a Secret would occur by accident.
const SHORTEST_SECRET: usize = 6;

fn wrong<T>(what: &str) -> Result<T, DriverError> {
    Err(DriverError::new(Code::Internal, format!("the driver returned {what}")))
}

/// A VM that a call returned.
pub(super) fn vm(vm: &Vm) -> Result<(), DriverError> {
    provider_id(&vm.provider_id)?;
    vm.node_provider_id.as_deref().map_or(Ok(()), provider_id)?;
    if !vm.node_name.is_empty() && !is_name(&vm.node_name) {
        return wrong("an invalid node name");
    }
    let is_address = |text: &str| text.len() <= LONGEST_NAME && is_printable(text);
    if vm.addresses.len() > MOST_ADDRESSES
        || !vm.addresses.iter().all(|one| is_address(&one.address) && is_address(&one.type_))
    {
        return wrong("invalid addresses");
    }
    let words = [&vm.zone, &vm.halted].into_iter().flatten();
    if !words.into_iter().all(|word| !word.is_empty() && is_address(word)) {
        return wrong("an invalid zone or state");
    }
    state(vm.last_known_state.as_deref())
}

fn provider_id(id: &str) -> Result<(), DriverError> {
    if id.is_empty() || id.len() > LONGEST_ID || !is_printable(id) || id.contains(char::is_whitespace) {
        return wrong("a provider ID that is empty, too long or not printable");
    }
    Ok(())
}

/// A state to store.
pub(super) fn state(state: Option<&str>) -> Result<(), DriverError> {
    match state {
        Some(state) if state.len() > LONGEST_STATE => wrong("a last known state of more than 64 KiB"),
        _ => Ok(()),
    }
}

/// A complete list, in which each provider ID that no VM can have and each name that no Machine can have are empty: such a
/// VM exists, but neither is it deleted, nor counts any Machine as one without a VM that may have it. The same holds for a VM
/// with a marker that no owner can have. Second: those entries, as they may be shown.
pub(super) fn list(all: VmsByProviderId) -> (VmsByProviderId, Vec<String>) {
    let mut wrong = Vec::new();
    let mut good = VmsByProviderId::new();
    for (id, vm) in all {
        let is_id = provider_id(&id).is_ok();
        let is_owner = vm.owner.as_deref().is_none_or(|owner| owner.len() <= LONGEST_NAME && is_printable(owner));
        if is_id && is_owner && is_name(&vm.machine) {
            good.insert(id, vm);
            continue;
        }
        let shown =
            |text: &str| self::text(&text.chars().take(LONGEST_NAME).collect::<String>(), &SecretData::default());
        wrong.push(format!("{:?} of machine {:?}", shown(&id), shown(&vm.machine)));
        let owner = if is_owner { vm.owner } else { Some(UNKNOWN_OWNER.to_owned()) };
        good.insert(if is_id { id } else { String::new() }, ListedVm::new("", owner));
    }
    (good, wrong)
}

/// The same for a test of the driver.
pub(super) fn flawless_list(all: VmsByProviderId) -> Result<VmsByProviderId, DriverError> {
    match list(all) {
        (all, flaws) if flaws.is_empty() => Ok(all),
        (_, flaws) => wrong(&format!("a list with invalid VMs: {}", first_of(&flaws))),
    }
}

/// The first entries of a list that are wrong.
pub(super) fn first_of(flaws: &[String]) -> String {
    flaws.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The pause of a call that may pause, if the driver requests one.
pub(super) fn pause(error: DriverError, may_pause: bool) -> DriverError {
    let bounded = |pause: Duration| pause.clamp(PAUSES.0, PAUSES.1);
    DriverError { call_again_in: error.call_again_in.filter(|_| may_pause).map(bounded), ..error }
}

/// The findings of a driver in its cloud, as they may be shown.
pub(super) fn findings(
    mut findings: Vec<ResourceFinding>,
    secret: &SecretData,
) -> Result<Vec<ResourceFinding>, DriverError> {
    if findings.len() > MOST_FINDINGS {
        return wrong("more findings than a class has fields");
    }
    for finding in &mut findings {
        finding.path = text(&finding.path, secret);
        finding.text = text(&finding.text, secret);
    }
    Ok(findings)
}

/// Names are short and printable, and the numbers are those of a VM.
pub(super) fn capacity(vm: &VmCapacity) -> Result<(), DriverError> {
    let is_name = |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME && is_printable(text);
    let are_names =
        [Some(vm.instance_type.as_str()), Some(&vm.region), vm.zone.as_deref()].into_iter().flatten().all(is_name);
    if !are_names || vm.cpus == 0 || vm.memory_mib == 0 { wrong("an invalid capacity of a VM") } else { Ok(()) }
}

/// IDs of volumes of `count` specs.
pub(super) fn volume_ids(ids: &[String], count: usize) -> Result<(), DriverError> {
    let is_id = |id: &String| !id.is_empty() && id.len() <= LONGEST_ID && is_printable(id);
    if ids.len() > count || !ids.iter().all(is_id) { wrong("invalid IDs of volumes") } else { Ok(()) }
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

/// A DNS subdomain, as names of Nodes and Machines are.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        label.starts_with(is_plain) && label.ends_with(is_plain) && label.chars().all(|c| is_plain(c) || c == '-')
    };
    text.len() <= LONGEST_NAME && text.split('.').all(is_label)
}

/// An error as it may be shown and stored: short, on one line, with paired brackets, and without values of the Secret.
pub(super) fn error(mut error: DriverError, secret: &SecretData) -> DriverError {
    error.message = text(&error.message, secret);
    if let Some(found) = &error.vm
        && vm(found).is_err()
    {
        error.vm = None;
    }
    if state(error.last_known_state.as_deref()).is_err() {
        error.last_known_state = None;
    }
    error
}

/// The texts of problems, likewise.
pub(super) fn problems(problems: &mut ClassProblems) {
    let none = SecretData::default();
    for problem in problems.errors.iter_mut().chain(&mut problems.warnings) {
        problem.path = text(&problem.path, &none);
        problem.text = text(&problem.text, &none);
    }
}

/// A text that may be shown: without values of the Secret, short, on one line, with paired brackets.
pub(super) fn text(text: &str, secret: &SecretData) -> String {
    let values = secret.0.values().filter_map(|value| std::str::from_utf8(value).ok()).map(str::trim);
    let mut values: Vec<&str> = values.filter(|value| value.len() >= SHORTEST_SECRET).collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    let hidden = values.into_iter().fold(text.to_owned(), |text, value| text.replace(value, "(secret)"));
    let mut end = hidden.len().min(LONGEST_TEXT);
    while !hidden.is_char_boundary(end) {
        end -= 1;
    }
    let cut = if end < hidden.len() { "…" } else { "" };
    let is_paired = has_paired_brackets(&hidden[..end]);
    let plain = |c: char| match c {
        '[' if !is_paired => '(',
        ']' if !is_paired => ')',
        c if is_deceptive(c) => ' ',
        c => c,
    };
    hidden[..end].chars().map(plain).collect::<String>() + cut
}

fn has_paired_brackets(text: &str) -> bool {
    let depth = text.chars().try_fold(0_usize, |depth, c| match c {
        '[' => Some(depth + 1),
        ']' => depth.checked_sub(1),
        _ => Some(depth),
    });
    depth == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::NodeAddress;
    use rstest::rstest;

    fn good() -> Vm {
        let address = NodeAddress { type_: "InternalIP".to_owned(), address: "10.0.0.1".to_owned() };
        Vm {
            provider_id: "aws:///eu-west-1/i-0123".to_owned(),
            node_name: "ip-10-0-0-1.eu-west-1.compute.internal".to_owned(),
            addresses: vec![address],
            last_known_state: Some("{}".to_owned()),
            ..Vm::default()
        }
    }

    #[rstest]
    #[case::good(|_: &mut Vm| (), true)]
    #[case::no_node_name_yet(|vm: &mut Vm| vm.node_name.clear(), true)]
    #[case::no_id(|vm: &mut Vm| vm.provider_id.clear(), false)]
    #[case::id_of_the_node(|vm: &mut Vm| vm.node_provider_id = Some("aws:///eu-west-1a/i-0123".to_owned()), true)]
    #[case::empty_id_of_the_node(|vm: &mut Vm| vm.node_provider_id = Some(String::new()), false)]
    #[case::zone_and_state(|vm: &mut Vm| (vm.zone, vm.halted) = (Some("z".to_owned()), Some("stopped".to_owned())), true)]
    #[case::line_break_in_the_zone(|vm: &mut Vm| vm.zone = Some("a\nb".to_owned()), false)]
    #[case::empty_state(|vm: &mut Vm| vm.halted = Some(String::new()), false)]
    #[case::line_break(|vm: &mut Vm| vm.provider_id.push('\n'), false)]
    #[case::space(|vm: &mut Vm| vm.provider_id.push(' '), false)]
    #[case::long_id(|vm: &mut Vm| vm.provider_id = "x".repeat(LONGEST_ID + 1), false)]
    #[case::capitals(|vm: &mut Vm| vm.node_name = "Node".to_owned(), false)]
    #[case::path(|vm: &mut Vm| vm.node_name = "a/../b".to_owned(), false)]
    #[case::long_name(|vm: &mut Vm| vm.node_name = "x".repeat(LONGEST_NAME + 1), false)]
    #[case::empty_label(|vm: &mut Vm| vm.node_name = "a..b".to_owned(), false)]
    #[case::many_addresses(|vm: &mut Vm| vm.addresses = vec![vm.addresses[0].clone(); MOST_ADDRESSES + 1], false)]
    #[case::bad_address(|vm: &mut Vm| vm.addresses[0].address.push('\0'), false)]
    #[case::large_state(|vm: &mut Vm| vm.last_known_state = Some("x".repeat(LONGEST_STATE + 1)), false)]
    fn a_vm_is_taken_only_if_a_node_can_be_like_that(#[case] change: fn(&mut Vm), #[case] is_good: bool) {
        let mut changed = good();
        change(&mut changed);
        assert_eq!(vm(&changed).is_ok(), is_good);
        let failed = DriverError { vm: Some(Box::new(changed)), ..DriverError::new(Code::Uninitialized, "x") };
        assert_eq!(error(failed, &SecretData::default()).vm.is_some(), is_good);
    }

    #[rstest]
    #[case(("aws:///i-1", "machine-1"), ("aws:///i-1", "machine-1"))]
    #[case::no_name(("aws:///i-1", ""), ("aws:///i-1", ""))]
    #[case::not_a_name(("aws:///i-1", "not a name"), ("aws:///i-1", ""))]
    #[case::no_id(("", "machine-1"), ("", ""))]
    #[case::not_an_id(("two words", "machine-1"), ("", ""))]
    fn a_wrong_entry_of_a_list_is_emptied_and_reported(#[case] found: (&str, &str), #[case] kept: (&str, &str)) {
        let owned = |(id, machine): (&str, &str)| (id.to_owned(), ListedVm::unmarked(machine));
        let fine = owned(("aws:///i-0", "machine-0"));
        let all: VmsByProviderId = [fine.clone(), owned(found)].into();
        let (good, flaws) = list(all.clone());
        assert_eq!(good, [fine, owned(kept)].into());
        assert_eq!(
            (flaws.len(), flawless_list(all).is_ok()),
            (usize::from(found != kept || kept.1.is_empty()), found == kept && !kept.1.is_empty())
        );
        assert!(flaws.iter().all(|flaw| flaw.contains(found.0) && flaw.contains(found.1)), "{flaws:?}");
    }

    #[rstest]
    #[case("team-b", true)]
    #[case("5c5b5f5e-7c66-4a9b-9b53-0f2b6f4e3c11", true)]
    #[case("", true)]
    #[case("team\nb", false)]
    #[case(&"x".repeat(LONGEST_NAME + 1), false)]
    fn a_vm_with_a_marker_that_no_owner_can_have_is_of_another_owner(#[case] owner: &str, #[case] is_good: bool) {
        let vm = ListedVm::new("machine-0", Some(owner.to_owned()));
        let (good, flaws) = list([("aws:///i-0".to_owned(), vm.clone())].into());
        let expected = if is_good { vm } else { ListedVm::new("", Some(UNKNOWN_OWNER.to_owned())) };
        assert_eq!((&good["aws:///i-0"], flaws.is_empty()), (&expected, is_good));
    }

    #[rstest]
    #[case(1_000, true, Some(1_000))]
    #[case::too_short(0, true, Some(100))]
    #[case::too_long(u64::MAX, true, Some(60_000))]
    #[case::not_asked_for(1_000, false, None)]
    fn a_pause_is_bounded_and_only_for_calls_that_may(
        #[case] found: u64,
        #[case] may_pause: bool,
        #[case] expected: Option<u64>,
    ) {
        let paused = DriverError::not_done("x", Duration::from_millis(found));
        assert_eq!(pause(paused, may_pause).call_again_in, expected.map(Duration::from_millis));
    }

    #[rstest]
    #[case(&["vol-1"], 1, true)]
    #[case(&[], 1, true)]
    #[case(&["vol-1", "vol-2"], 1, false)]
    #[case(&[""], 1, false)]
    #[case(&["a\nb"], 1, false)]
    fn volumes_have_ids_and_are_not_more_than_asked_for(
        #[case] ids: &[&str],
        #[case] count: usize,
        #[case] good: bool,
    ) {
        let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
        assert_eq!(volume_ids(&ids, count).is_ok(), good);
    }

    #[rstest]
    #[case("quota [a] is [b]", "quota [a] is [b]")]
    #[case("quota [a", "quota (a")]
    #[case("a ] b [", "a ) b (")]
    #[case("two\nlines", "two lines")]
    #[case("key hunter2-hunter2 is wrong", "key (secret) is wrong")]
    #[case("short ab stays", "short ab stays")]
    fn a_text_is_made_fit_to_be_shown(#[case] found: &str, #[case] shown: &str) {
        let part = |key: &str, value: &str| (key.to_owned(), value.as_bytes().to_vec());
        let secret =
            SecretData([part("key", "hunter2-hunter2\n"), part("short", "ab"), part("part", "hunter2")].into());
        let failed = DriverError { last_known_state: Some("s".to_owned()), ..DriverError::new(Code::Internal, found) };
        let clean = error(failed, &secret);
        assert_eq!((clean.message.as_str(), clean.last_known_state.as_deref()), (shown, Some("s")));
    }

    #[test]
    fn a_long_text_is_cut_and_a_large_state_dropped() {
        let failed = DriverError {
            last_known_state: Some("x".repeat(LONGEST_STATE + 1)),
            ..DriverError::new(Code::Internal, "µ".repeat(LONGEST_TEXT))
        };
        let clean = error(failed, &SecretData::default());
        assert!(clean.message.len() <= LONGEST_TEXT + '…'.len_utf8() && clean.message.ends_with('…'));
        assert_eq!(clean.last_known_state, None);
    }
}
