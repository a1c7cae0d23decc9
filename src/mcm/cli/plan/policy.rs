//! The flags of the manager, with which a change is played.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use serde_json::Value;

use crate::cli::{objects, run};
use mcm_insight::{
    error::{UsageError, error_line},
    memory,
    read_only::ReadOnly,
    story::ManagerLease,
};

/// Flags by name.
type ManagerFlags = BTreeMap<String, String>;

/// Gives the controllers of a rehearsal the flags of a file, or else those of the managers that answer, or else the defaults.
/// The source in words.
///
/// # Errors
/// The file cannot be read, or a flag has an invalid value.
pub(super) async fn apply(file: Option<&Path>, cell: &mut ReadOnly, managers: &[ManagerLease]) -> Result<String> {
    let (flags, source) = match file {
        Some(file) => (read(file)?, format!("those of {}", file.display())),
        None => asked(cell, managers).await,
    };
    cell.settings = run::with_flags(&cell.settings, &flags).map_err(|error| {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        UsageError { message: format!("flags of the manager: {message}"), hint: "see mcm run --help".to_owned() }
    })?;
    Ok(source)
}

async fn asked(cell: &ReadOnly, managers: &[ManagerLease]) -> (ManagerFlags, String) {
    let (mut flags, mut from, mut problems) = (ManagerFlags::new(), Vec::new(), Vec::new());
    for (manager, answer) in memory::settings(cell, managers).await {
        match answer {
            Ok(configz) => {
                flags.extend(of_configz(&configz));
                from.push(manager);
            }
            Err(error) => problems.push(format!("{manager}: {}", error_line(&error))),
        }
    }
    let source = match (from.is_empty(), problems.is_empty()) {
        (false, _) => format!("those of {}", from.join(" and ")),
        (true, false) => {
            format!("the defaults, because no manager answered ({}); --policy names others", problems.join("; "))
        }
        (true, true) if managers.is_empty() => {
            "the defaults, because the Leases of the managers could not be read; --policy names others".to_owned()
        }
        (true, true) => "the defaults, because no manager of mcm holds a Lease".to_owned(),
    };
    (flags, source)
}

fn read(file: &Path) -> Result<ManagerFlags> {
    let text = objects::read_text(file)?;
    let flags = match serde_json::from_str::<Value>(&text) {
        Ok(configz) if configz["mcm"]["flags"].is_object() => of_configz(&configz),
        _ => of_words(&text),
    };
    if flags.is_empty() {
        let message = format!("{} has no flags", file.display());
        let hint = "write flags such as --machine-drain-timeout=2h, or the answer of /configz".to_owned();
        return Err(UsageError { message, hint }.into());
    }
    Ok(flags)
}

/// The answer of `/configz`.
fn of_configz(configz: &Value) -> ManagerFlags {
    let flags = configz["mcm"]["flags"].as_object().into_iter().flatten();
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    flags.filter_map(|(flag, value)| Some((flag.clone(), text(value)?))).collect()
}

/// The flags of a command line, or of a list of arguments in a manifest, without comments.
fn of_words(text: &str) -> ManagerFlags {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let lines = lines.map(|line| line.split_once(" #").map_or(line, |(before, _)| before));
    let words = lines.flat_map(str::split_whitespace).map(|word| word.trim_matches(['"', '\'', ',', '[', ']']));
    let mut words = words.filter(|word| !word.is_empty() && *word != "-" && *word != "\\").peekable();
    let mut flags = ManagerFlags::new();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value),
            None => (flag, words.next_if(|next| !next.starts_with('-')).unwrap_or("true")),
        };
        flags.insert(name.replace('_', "-"), value.to_owned());
    }
    flags
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use mcm_driver_host::DriverCatalogue;

    #[rstest]
    #[case::a_command_line(
        "mcm run --machine-drain-timeout=45m --safety-up 7 --machine_safety_orphan_vms_dry_run --v=3"
    )]
    #[case::a_manifest("args:\n- run\n- --machine-drain-timeout=45m\n- \"--safety-up=7\"\n- --v=3\n")]
    #[case::comments(
        "args:\n- --machine-drain-timeout=45m # not --safety-up=9\n- --safety-up=7\n  # - --safety-up=8\n"
    )]
    #[case::configz(r#"{"mcm":{"flags":{"machine-drain-timeout":"45m0s","safety-up":7,"kube-api-qps":20.0,"machine-safety-max-unhealthy-replacements-per-zone":null}}}"#)]
    fn flags_of_a_file_are_the_policies_of_a_plan(#[case] text: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let settings = run::default_settings(DriverCatalogue::default());
        let given = run::with_flags(&settings, &read(file.path()).unwrap()).unwrap();
        assert_eq!(json!(given.machine.drain_timeout.to_string()), "45m0s");
        assert_eq!((given.overshoot.margins.up, given.overshoot.margins.down), (7, settings.overshoot.margins.down));
        assert_eq!(given.machine.creation_timeout, settings.machine.creation_timeout);
    }

    #[test]
    fn a_file_without_flags_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "kind: Deployment\n").unwrap();
        assert!(read(file.path()).unwrap_err().to_string().contains("has no flags"));
    }
}
