//! The control planes of a cluster as text.

use std::fmt::Write as _;

use mcm_insight::{
    fleet::{FleetAnswer, PlaneAnswer, PlaneState},
    grouping::occurrences,
    table::table_for,
    terminal::{StatusMark, TerminalLook, cut, short},
};
use mcm_rules::plan::counted;

/// Control planes that a screen shows.
const MOST: usize = 12;

/// A summary, and the control planes with trouble; in a pipe one line for each control plane.
pub(super) fn text(look: TerminalLook, title: &str, answer: &FleetAnswer, all: bool) -> String {
    let FleetAnswer { planes, unread } = answer;
    let mut text = String::new();
    if look.is_terminal {
        let _ = writeln!(text, "{title}");
        let _ = writeln!(text, "{} {}", look.mark(mark(planes, unread)), summary(planes));
        for (owner, count) in occurrences(planes.iter().flat_map(|plane| &plane.owners)) {
            let _ = writeln!(text, "    {owner}: {}", counted(count, "control plane"));
        }
    } else if planes.is_empty() {
        text += "there are no control planes\n";
    }
    let shown: Vec<&PlaneAnswer> =
        planes.iter().filter(|plane| all || !look.is_terminal || plane.state.is_trouble()).collect();
    let most = if all || !look.is_terminal { shown.len() } else { MOST.min(shown.len()) };
    if !shown.is_empty() {
        let header = ["namespace", "state", "owner", "machines", "why"];
        let table = table_for(false, &header, shown[..most].iter().map(|plane| row(plane)));
        let width = if look.is_terminal { look.width } else { usize::MAX };
        for line in table.lines() {
            let _ = writeln!(text, "{}", look.written(&cut(line, width)));
        }
    }
    if most < shown.len() {
        let _ = writeln!(text, "{} more: --all shows each", counted(shown.len() - most, "control plane"));
    }
    for problem in unread {
        let _ = writeln!(text, "note: not read, so unknown: {}", short(problem));
    }
    text
}

fn mark(planes: &[PlaneAnswer], unread: &[String]) -> StatusMark {
    match planes.first().map(|plane| plane.state) {
        Some(PlaneState::Unled | PlaneState::Frozen) => StatusMark::Bad,
        Some(PlaneState::Unknown) => StatusMark::Refused,
        _ if !unread.is_empty() => StatusMark::Refused,
        _ => StatusMark::Good,
    }
}

/// Such as `203 control planes: 2 no manager, 1 parked, 200 led`.
fn summary(planes: &[PlaneAnswer]) -> String {
    let states = occurrences(planes.iter().map(|plane| plane.state));
    let states: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let all = counted(planes.len(), "control plane");
    if states.is_empty() { all } else { format!("{all}: {}", states.join(", ")) }
}

fn row(plane: &PlaneAnswer) -> [String; 5] {
    let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        plane.namespace.clone(),
        plane.state.to_string(),
        or_none(plane.owners.join(", ")),
        plane.machines.map_or_else(|| "?".to_owned(), |count| format!("{}/{}", count.running, count.total)),
        or_none(plane.reason.clone().unwrap_or_default()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_insight::{fleet::MachineCount, testing::TERMINAL};

    fn plane(number: usize, state: PlaneState, reason: Option<&str>) -> PlaneAnswer {
        PlaneAnswer {
            namespace: format!("shoot--a--{number:03}"),
            state,
            owners: if state == PlaneState::Unled { Vec::new() } else { vec![format!("mcm-{}", number % 2)] },
            machines: Some(MachineCount { total: 50, running: 48 }),
            reason: reason.map(str::to_owned),
            managers: Vec::new(),
        }
    }

    #[test]
    fn two_hundred_planes_fit_a_screen() {
        let mut planes: Vec<_> = (0..20)
            .map(|number| plane(number, PlaneState::Unled, Some("no process holds Lease machine-controller")))
            .collect();
        planes.extend((20..200).map(|number| plane(number, PlaneState::Led, None)));
        let text = text(TERMINAL, "cluster blue, all namespaces", &FleetAnswer { planes, unread: Vec::new() }, false);
        assert!(
            text.starts_with("cluster blue, all namespaces\n✖ 200 control planes: 20 no manager, 180 led\n"),
            "{text}"
        );
        assert!(
            text.contains("    mcm-1: 90 control planes\n") && text.contains("8 control planes more: --all shows each"),
            "{text}"
        );
        assert!(!text.contains("shoot--a--020"), "{text}");
        assert!(text.lines().count() <= 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_pipe_gets_a_line_for_each_plane() {
        let planes = vec![plane(1, PlaneState::Frozen, Some("for 4m: connect")), plane(2, PlaneState::Led, None)];
        let unread = vec!["list deployments: forbidden".to_owned()];
        let text = text(TerminalLook::PLAIN, "cluster blue", &FleetAnswer { planes, unread }, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "NAMESPACE STATE OWNER MACHINES WHY");
        assert_eq!(words(lines[1]), "shoot--a--001 frozen mcm-1 48/50 for 4m: connect");
        assert_eq!(words(lines[2]), "shoot--a--002 led mcm-0 48/50 -");
        assert_eq!(lines[3], "note: not read, so unknown: list deployments: forbidden");
    }
}
