//! What a driver returned is checked before anything is done with it: it is another program, perhaps of somebody else.

use crate::driver::{
    code::Code,
    error::DriverError,
    interface::SecretData,
    spec::Problems,
    vm::{Listed, Vm},
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
/// Shorter values of a Secret would occur by accident.
const SHORTEST_SECRET: usize = 6;

fn wrong<T>(what: &str) -> Result<T, DriverError> {
    Err(DriverError::new(Code::Internal, format!("the driver returned {what}")))
}

/// A VM that a call returned.
pub(super) fn vm(vm: &Vm) -> Result<(), DriverError> {
    provider_id(&vm.provider_id)?;
    if !vm.node_name.is_empty() && !is_name(&vm.node_name) {
        return wrong("a node name that no Node can have");
    }
    let is_address = |text: &str| text.len() <= LONGEST_NAME && is_printable(text);
    if vm.addresses.len() > MOST_ADDRESSES
        || !vm.addresses.iter().all(|one| is_address(&one.address) && is_address(&one.type_))
    {
        return wrong("addresses that are none");
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

/// A complete list. VMs without a machine are deleted, so one entry that is wrong makes all of it doubtful.
pub(super) fn list(all: &Listed) -> Result<(), DriverError> {
    for (id, vm) in all {
        provider_id(id)?;
        if !is_name(&vm.machine) {
            return wrong("a list with a VM of a machine that cannot exist");
        }
        if vm.owner.as_ref().is_some_and(|owner| owner.len() > LONGEST_NAME || !is_printable(owner)) {
            return wrong("a list with a VM whose owner is too long or not printable");
        }
    }
    Ok(())
}

/// IDs of volumes of `count` specs.
pub(super) fn volume_ids(ids: &[String], count: usize) -> Result<(), DriverError> {
    let is_id = |id: &String| !id.is_empty() && id.len() <= LONGEST_ID && is_printable(id);
    if ids.len() > count || !ids.iter().all(is_id) { wrong("IDs of volumes that are none") } else { Ok(()) }
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
pub(super) fn problems(problems: &mut Problems) {
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
        c if c.is_control() => ' ',
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
    use crate::driver::vm::ListedVm;
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
    #[case("aws:///i-1", "machine-1", true)]
    #[case("aws:///i-1", "", false)]
    #[case("aws:///i-1", "not a name", false)]
    #[case("", "machine-1", false)]
    fn one_bad_entry_makes_a_list_useless(#[case] id: &str, #[case] machine: &str, #[case] is_good: bool) {
        let fine = ("aws:///i-0".to_owned(), ListedVm::unmarked("machine-0"));
        assert_eq!(list(&[fine, (id.to_owned(), ListedVm::unmarked(machine))].into()).is_ok(), is_good);
    }

    #[rstest]
    #[case("team-b", true)]
    #[case("5c5b5f5e-7c66-4a9b-9b53-0f2b6f4e3c11", true)]
    #[case("", true)]
    #[case("team\nb", false)]
    #[case(&"x".repeat(LONGEST_NAME + 1), false)]
    fn an_owner_is_short_and_printable(#[case] owner: &str, #[case] is_good: bool) {
        let vm = ListedVm::new("machine-0", Some(owner.to_owned()));
        assert_eq!(list(&[("aws:///i-0".to_owned(), vm)].into()).is_ok(), is_good);
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
