//! Commands that users paste into a shell.

use std::borrow::Cow;

use mcm_api::kinds::{ResourceKind, VOLUME_ATTACHMENTS, mcm_kind};
use serde::Serialize;

/// A text as one word of a shell. Texts of objects are quoted unless they are plain, so that nothing in them is executed.
pub fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "-_./:=@%+,".contains(one);
    if !text.is_empty() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// The kind as an argument of kubectl. Short names are ambiguous where Cluster API, which has kinds of the same names, is installed.
pub fn resource_name(kind: &str) -> String {
    mcm_kind(kind).map_or_else(|| kind.to_lowercase(), ResourceKind::full_name)
}

/// Sub-commands of mcm that take `--target-kubeconfig`.
pub const OF_TARGET: [&str; 15] = [
    "why",
    "tree",
    "top",
    "events",
    "plan",
    "check",
    "dashboard",
    "rollout status",
    "rollout history",
    "rollout undo",
    "rollout abort",
    "rollout resume",
    "scale",
    "machine replace",
    "vms",
];

/// Sub-commands of mcm in commands that are printed, and verbs of kubectl. Before other words they are prose.
const OF_MCM: [&str; 14] = [
    "why",
    "tree",
    "top",
    "events",
    "plan",
    "check",
    "dashboard",
    "rollout",
    "scale",
    "freeze",
    "unfreeze",
    "drain",
    "machine",
    "vms",
];
const OF_KUBECTL: [&str; 9] = ["annotate", "auth", "delete", "describe", "edit", "get", "label", "patch", "set"];
/// Flags that lead to a cluster.
const FLAGS: [&str; 5] = ["--kubeconfig", "--context", "--as", "--as-group", "--target-kubeconfig"];
/// Resources of the target cluster, as kubectl takes them.
const IN_TARGET: [&str; 6] = ["node", "nodes", "pdb", "pod", "pods", VOLUME_ATTACHMENTS.plural];

/// The command of kubectl is for the target cluster: its objects are there.
pub fn is_of_target(command: &str) -> bool {
    let mut words = command.split_whitespace();
    words.next() == Some("kubectl") && words.nth(1).is_some_and(|resource| IN_TARGET.contains(&resource))
}

/// The cluster of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum CommandCluster {
    /// That of the MCM objects.
    #[default]
    Control,
    /// The one that the Nodes join.
    Target,
    /// The workload cluster of a Cluster of Cluster API, whose flags are not known.
    Workload,
}

/// The flags of a call that lead to its clusters, for the commands that it prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFlags {
    /// The program, if it was not called as `mcm`, such as `kubectl mcm`.
    pub program: Option<&'static str>,
    /// Of the control cluster, for mcm and kubectl: `--kubeconfig`, `--context`, `--as`, `--as-group`.
    pub control: Vec<(&'static str, String)>,
    /// The value of `--target-kubeconfig`; empty if the Nodes are in the control cluster.
    pub target: String,
}

/// The flags for the control cluster, in the order in which they are printed.
pub fn control_flags(
    kubeconfig: Option<String>,
    context: Option<String>,
    user: Option<String>,
    groups: impl IntoIterator<Item = String>,
) -> Vec<(&'static str, String)> {
    let one = [("--kubeconfig", kubeconfig), ("--context", context), ("--as", user)];
    let one = one.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
    one.chain(groups.into_iter().map(|group| ("--as-group", group))).collect()
}

impl CallFlags {
    /// A text with the flags of this call in each of its commands, which are for one cluster.
    pub fn addressed_to(&self, text: &str, cluster: CommandCluster) -> String {
        match cluster {
            CommandCluster::Control => self.addressed(text, false),
            CommandCluster::Target => self.addressed(text, true),
            CommandCluster::Workload => text.to_owned(),
        }
    }

    /// A text with the flags of this call in each of its commands, which begin with `mcm` or `kubectl`. A command of the target
    /// cluster has those of that cluster.
    pub fn addressed(&self, text: &str, is_in_target: bool) -> String {
        let (mut done, mut rest) = (String::new(), text);
        while let Some((start, program)) = next_command(rest) {
            done.push_str(&rest[..start]);
            let command = &rest[start..];
            // The next command in the text, or a pipe, ends this one.
            let behind = next_command(&command[program.len()..]).map(|(next, _)| next + program.len());
            let pipe = command.find(['|', ';', '\n']);
            let end = behind.into_iter().chain(pipe).min().unwrap_or(command.len());
            done.push_str(&self.with_flags(program, &command[..end], is_in_target));
            rest = &command[end..];
        }
        done + rest
    }

    fn with_flags(&self, program: &str, command: &str, is_in_target: bool) -> String {
        let words = command[program.len()..].trim_start();
        let is_of_mcm = program == "mcm";
        let mut flags = match (is_in_target && !is_of_mcm, self.target.as_str()) {
            (true, "" | "none") | (false, _) => self.control.clone(),
            (true, file) => vec![("--kubeconfig", file.to_owned())],
        };
        let takes_target =
            OF_TARGET.iter().any(|one| words.strip_prefix(one).is_some_and(|rest| rest.starts_with(' ')));
        if is_of_mcm && takes_target && !self.target.is_empty() {
            flags.push(("--target-kubeconfig", self.target.clone()));
        }
        // A command may have got its flags where it was made.
        if FLAGS.iter().any(|flag| command.contains(&format!(" {flag} "))) {
            flags.clear();
        }
        let flags: String = flags.iter().map(|(flag, value)| format!(" {flag} {}", word(value))).collect();
        let with_flags = match (after_namespace(command), is_of_mcm) {
            (Some(at), _) => format!("{}{flags}{}", &command[..at], &command[at..]),
            (None, false) => format!("{program}{flags}{}", &command[program.len()..]),
            (None, true) => command.to_owned(),
        };
        match self.program.filter(|_| is_of_mcm) {
            Some(own) => with_flags.replacen(program, own, 1),
            None => with_flags,
        }
    }
}

/// Where the next command begins in a text, and its program.
fn next_command(text: &str) -> Option<(usize, &'static str)> {
    let of_program = |program: &'static str, known: &[&str]| {
        text.match_indices(program).map(|(start, _)| start).find_map(|start| {
            let before = &text[..start];
            let is_at_word =
                before.chars().next_back().is_none_or(|sign| " (:\n".contains(sign)) && !before.ends_with("kubectl ");
            let words = text[start + program.len()..].strip_prefix(' ')?;
            let is_known = known.contains(&words.split(' ').next().unwrap_or_default());
            (is_at_word && is_known).then_some((start, program))
        })
    };
    of_program("mcm", &OF_MCM).into_iter().chain(of_program("kubectl", &OF_KUBECTL)).min()
}

/// The place behind the namespace in a command.
fn after_namespace(command: &str) -> Option<usize> {
    if let Some(at) = command.find(" -n ") {
        let value = at + " -n ".len();
        let is_of_name = |one: char| one.is_ascii_alphanumeric() || one == '-' || one == '.';
        return Some(command[value..].find(|one| !is_of_name(one)).map_or(command.len(), |length| value + length));
    }
    let at = command.find(" -A")? + " -A".len();
    command[at..].chars().next().is_none_or(char::is_whitespace).then_some(at)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rstest::rstest;

    use super::*;

    fn of_blue() -> CallFlags {
        let control = vec![("--context", "blue".to_owned()), ("--as", "al ice".to_owned())];
        CallFlags { program: None, control, target: "/t".to_owned() }
    }

    #[rstest]
    #[case::reader("mcm why pool -n demo", "mcm why pool -n demo --context blue --as 'al ice' --target-kubeconfig /t")]
    #[case::verb("mcm rollout pause pool -n demo", "mcm rollout pause pool -n demo --context blue --as 'al ice'")]
    #[case::verb_with_a_plan(
        "mcm rollout undo pool -n demo --to-revision 1",
        "mcm rollout undo pool -n demo --context blue --as 'al ice' --target-kubeconfig /t --to-revision 1"
    )]
    #[case::of_all("mcm plan -A", "mcm plan -A --context blue --as 'al ice' --target-kubeconfig /t")]
    #[case::kubectl(
        r#"kubectl patch pdb web -n demo --type merge -p '{"a":"x -n y"}'"#,
        r#"kubectl patch pdb web -n demo --context blue --as 'al ice' --type merge -p '{"a":"x -n y"}'"#
    )]
    #[case::without_a_namespace("kubectl get nodes", "kubectl --context blue --as 'al ice' get nodes")]
    #[case::pipe(
        "kubectl get secrets -n demo -o yaml | mcm class check -f -",
        "kubectl get secrets -n demo --context blue --as 'al ice' -o yaml | mcm class check -f -"
    )]
    #[case::two(
        "see mcm tree x -n a; or kubectl get pods -n b",
        "see mcm tree x -n a --context blue --as 'al ice' --target-kubeconfig /t; or kubectl get pods -n b --context blue --as 'al ice'"
    )]
    #[case::prose("resumes it, as mcm rollout resume does", "resumes it, as mcm rollout resume does")]
    #[case::name("a deployment of mcm why-not", "a deployment of mcm why-not")]
    fn a_command_has_the_flags_of_its_call(#[case] text: &str, #[case] expected: &str) {
        let call = of_blue();
        assert_eq!(call.addressed(text, false), expected);
        assert_eq!(call.addressed(expected, false), expected, "flags are added once");
        assert_eq!(CallFlags::default().addressed(text, false), text);
    }

    #[test]
    fn a_command_of_the_target_cluster_has_its_kubeconfig() {
        let call = of_blue();
        assert_eq!(call.addressed("kubectl get pdb -A", true), "kubectl get pdb -A --kubeconfig /t");
        assert_eq!(call.addressed_to("kubectl get pdb -A", CommandCluster::Workload), "kubectl get pdb -A");
        let same = CallFlags { target: String::new(), ..call };
        assert_eq!(same.addressed("kubectl get pdb -A", true), "kubectl get pdb -A --context blue --as 'al ice'");
    }

    #[test]
    fn a_plugin_of_kubectl_prints_its_own_name() {
        let call = CallFlags { program: Some("kubectl mcm"), ..CallFlags::default() };
        assert_eq!(call.addressed("mcm why pool -n demo", false), "kubectl mcm why pool -n demo");
        assert_eq!(call.addressed("kubectl get pods -n demo", false), "kubectl get pods -n demo");
    }

    #[rstest]
    #[case("pool-6d689-gmjqk", "pool-6d689-gmjqk")]
    #[case("", "''")]
    #[case("a b", "'a b'")]
    #[case("$(echo no)", "'$(echo no)'")]
    #[case("x';echo no;'", r"'x'\'';echo no;'\'''")]
    fn a_text_is_one_word_whatever_it_contains(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(word(text), expected);
        let printed = Command::new("sh").args(["-c", &format!("printf %s {}", word(text))]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&printed.stdout), text);
    }
}
