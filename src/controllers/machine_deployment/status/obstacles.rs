//! The obstacles that Machines report, in one line for the condition `Progressing`.

use std::{cmp::Reverse, collections::BTreeMap};

use kube::ResourceExt;

use crate::object::text::cut;
use mcm_api::{
    machine::{Machine, MachinePhase, OperationState},
    reasons::MachineConditionType,
};

/// Longest text of one obstacle, in bytes.
const LONGEST: usize = 300;
/// Texts with the same leading letters are one obstacle: other characters, and the text after them, may be the ID of a
/// request.
const COMPARED: usize = 48;
/// Machines that are named.
const NAMED: usize = 3;

/// Work that an obstacle holds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BlockedWork {
    Drain,
    Deletion,
    Creation,
    Health,
}

impl BlockedWork {
    fn describe_count(self, count: usize) -> String {
        let (one, several) = match self {
            Self::Drain => ("drain", "drains"),
            Self::Deletion => ("deletion", "deletions"),
            Self::Creation => ("machine to be created", "machines to be created"),
            Self::Health => ("machine to become healthy", "machines to become healthy"),
        };
        format!("{count} {}", if count == 1 { one } else { several })
    }
}

/// The obstacle that most Machines have, with their number and names; `None` if no Machine names one. Completes "waiting for".
pub(super) fn top<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Option<String> {
    let mut groups: BTreeMap<(BlockedWork, String, String), BTreeMap<String, String>> = BTreeMap::new();
    for machine in machines {
        if let Some((work, code, text)) = obstacle_of(machine) {
            let text = text.replace(&machine.name_any(), "it");
            let beginning = cut(&text, COMPARED).chars().filter(|c| c.is_alphabetic()).collect();
            groups.entry((work, code, beginning)).or_default().insert(machine.name_any(), text);
        }
    }
    let ((work, code, _), group) = groups.into_iter().min_by_key(|(key, group)| (Reverse(group.len()), key.clone()))?;
    let text = cut(group.values().next()?, LONGEST);
    let code = if code.is_empty() { code } else { format!("{code}: ") };
    let mut names: Vec<&str> = group.keys().take(NAMED).map(String::as_str).collect();
    let more = format!("{} more", group.len().saturating_sub(NAMED));
    if group.len() > NAMED {
        names.push(&more);
    }
    Some(format!("{}: {code}{} ({})", work.describe_count(group.len()), text.trim_end_matches('.'), names.join(", ")))
}

/// The work, the code of the error and the text.
fn obstacle_of(machine: &Machine) -> Option<(BlockedWork, String, String)> {
    let status = machine.status.as_ref()?;
    let blocked = status.conditions.iter().find(|it| it.type_ == MachineConditionType::DrainBlocked.as_str());
    if let Some(message) = blocked.and_then(|condition| condition.message.as_deref()) {
        return Some((BlockedWork::Drain, String::new(), message.to_owned()));
    }
    let operation = &status.last_operation;
    let has_failed = operation.state == Some(OperationState::Failed);
    let work = match machine.phase() {
        _ if machine.is_terminating() => BlockedWork::Deletion,
        MachinePhase::Unknown => BlockedWork::Health,
        _ if machine.is_available() || machine.is_preserved_failed() => return None,
        MachinePhase::Failed if !machine.spec.provider_id.is_empty() => BlockedWork::Health,
        _ => BlockedWork::Creation,
    };
    // A text about a Node that is not healthy is not yet a failure of an operation.
    let is_told = has_failed || work == BlockedWork::Health;
    (is_told && !operation.description.is_empty())
        .then(|| (work, operation.error_code.clone(), operation.description.clone()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn machine(name: &str, status: &Value) -> Machine {
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": {}, "status": status })).unwrap()
    }

    fn failed(code: &str, text: &str) -> Value {
        let operation = json!({ "type": "Create", "state": "Failed", "errorCode": code, "description": text });
        json!({ "currentStatus": { "phase": "CrashLoopBackOff" }, "lastOperation": operation })
    }

    fn blocked() -> Value {
        let message = "pod disruption budget demo/strict allows no eviction";
        let condition = json!({ "type": "DrainBlocked", "status": "True", "message": message });
        json!({ "currentStatus": { "phase": "Terminating" }, "conditions": [condition] })
    }

    #[rstest]
    #[case::nobody_waits(vec![json!({ "currentStatus": { "phase": "Running" } })], None)]
    #[case::nothing_is_known(vec![json!({ "currentStatus": { "phase": "Pending" } })], None)]
    #[case::a_budget(
        vec![blocked(), blocked()],
        Some("2 drains: pod disruption budget demo/strict allows no eviction (m0, m1)")
    )]
    #[case::a_stock_out(
        vec![failed("ResourceExhausted", "no capacity for m0, request 17."), failed("ResourceExhausted", "no capacity for m1, request 18.")],
        Some("2 machines to be created: ResourceExhausted: no capacity for it, request 17 (m0, m1)")
    )]
    #[case::most_have_it(vec![blocked(), failed("", "a"), failed("", "a")], Some("2 machines to be created: a (m1, m2)"))]
    #[case::not_all_are_named(vec![failed("", "a"); 5], Some("5 machines to be created: a (m0, m1, m2, 2 more)"))]
    fn the_obstacle_of_most_machines_is_reported(#[case] statuses: Vec<Value>, #[case] expected: Option<&str>) {
        let machines: Vec<_> =
            (0..).zip(&statuses).map(|(index, status)| machine(&format!("m{index}"), status)).collect();
        assert_eq!(top(&machines).as_deref(), expected);
        assert_eq!(top(machines.iter().rev()).as_deref(), expected, "whatever their order");
    }

    #[test]
    fn a_long_text_is_cut() {
        let machines = [machine("m0", &failed("", &"x".repeat(10_000)))];
        assert!(top(&machines).unwrap().len() < 400);
    }
}
