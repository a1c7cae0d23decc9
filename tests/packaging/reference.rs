//! Pages of `docs/reference` that are made from the code. `UPDATE_DOCS=1 cargo test --test packaging` writes them.

use std::{collections::BTreeSet, fmt::Write as _, fs};

use regex::Regex;
use serde_json::Value;

use super::{ROOT, generated, metrics::families};

/// How to write the pages, for their readers.
const WRITTEN: &str = "run `UPDATE_DOCS=1 cargo test --test packaging` after a change.";

/// With all commands.
#[cfg(feature = "remote")]
#[test]
fn the_page_of_flags_is_up_to_date() {
    let mut page =
        format!("# Commands and flags\n\nThe help of each command. Generated from the command line: {WRITTEN}\n");
    let mut commands = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        let help = help(&command);
        // In the order of the help.
        for name in sub_commands(&help).into_iter().rev() {
            commands.push([&command[..], &[name]].concat());
        }
        write!(page, "\n## mcm {}\n\n```text\n{help}```\n", command.join(" ")).unwrap();
    }
    generated("docs/reference/flags.md", &page.replace("## mcm \n", "## mcm\n"));
}

#[cfg(feature = "remote")]
fn help(command: &[String]) -> String {
    let mut mcm = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("mcm"));
    let output = mcm.env_clear().args(command).arg("--help").assert().success().get_output().stdout.clone();
    let lines: Vec<String> =
        String::from_utf8(output).unwrap().lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// Names in the list of sub-commands of a help text.
#[cfg(feature = "remote")]
fn sub_commands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").skip(1).flat_map(|rest| rest.lines().take_while(|line| !line.is_empty()));
    let names = list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    let mut page = format!(
        "# Metrics\n\nAll families of `/metrics`. [Operations](../operations.md#metrics) groups them and names the differences from the Go programs. \
         Generated from the source: {WRITTEN}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"
    );
    for (name, family) in families() {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(page, "| `{name}` | {} | {} | {} |", family.kind, labels.join(", "), cell(&family.help)).unwrap();
    }
    generated("docs/reference/metrics.md", &page);
}

#[test]
fn the_pages_of_resources_are_up_to_date() {
    for (name, title, folder) in [
        ("resources", "Resources", "crds"),
        ("resources-cluster-api", "Resources of the provider for Cluster API", "crds/cluster-api"),
    ] {
        let mut files: Vec<_> = fs::read_dir(format!("{ROOT}/{folder}"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
            .collect();
        files.sort();
        let mut page = format!(
            "# {title}\n\nThe fields of each kind, from the definitions in [{folder}](../../{folder}). `[]` is a list, `{{}}` a map. \
             Generated: {WRITTEN}\n"
        );
        for file in files {
            let crd: Value = serde_yaml_ng::from_str(&fs::read_to_string(file).unwrap()).unwrap();
            kind(&crd["spec"], &mut page);
        }
        generated(&format!("docs/reference/{name}.md"), &page);
    }
}

/// The section of a kind: the fields of its latest version.
fn kind(spec: &Value, page: &mut String) {
    let names = &spec["names"];
    let version = spec["versions"].as_array().unwrap().last().unwrap();
    let short: Vec<&str> = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let short = if short.is_empty() { String::new() } else { format!(", `kubectl get {}`", short.join(", ")) };
    let (kind, group) = (names["kind"].as_str().unwrap(), spec["group"].as_str().unwrap());
    write!(page, "\n## {kind}\n\n`{group}/{}`{short}", version["name"].as_str().unwrap()).unwrap();
    let schema = &version["schema"]["openAPIV3Schema"];
    let about = schema["description"].as_str().unwrap_or_default();
    write!(page, "\n\n{about}\n\n| Field | Type | Meaning |\n|---|---|---|\n").unwrap();
    fields("", schema, page);
}

fn fields(path: &str, schema: &Value, page: &mut String) {
    let required: BTreeSet<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let (suffix, inner) = if field["items"].is_object() {
            ("[]", &field["items"])
        } else if field["additionalProperties"].is_object() {
            ("{}", &field["additionalProperties"])
        } else {
            ("", field)
        };
        let path = format!("{path}{name}{suffix}");
        let about = cell(field["description"].as_str().or(inner["description"].as_str()).unwrap_or_default());
        let mark = if required.contains(name.as_str()) { ", required" } else { "" };
        writeln!(page, "| `{path}` | {}{mark} | {about} |", type_of(inner)).unwrap();
        fields(&format!("{path}."), inner, page);
    }
}

fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "number or string".to_owned();
    }
    let values: Vec<String> = schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|value| format!("`{}`", value.as_str().unwrap_or_default()))
        .collect();
    if values.is_empty() { schema["type"].as_str().unwrap_or("any").to_owned() } else { values.join(", ") }
}

/// A text without the marks of tables and HTML.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

/// The page is written by hand, because the source has no meanings.
#[test]
fn the_page_of_events_has_every_reason() {
    let source = fs::read_to_string(format!("{ROOT}/src/api/reasons.rs")).unwrap();
    let of_events = source.split("    EventReason {").nth(1).unwrap().split("\n}").next().unwrap();
    let literal = Regex::new(r#"= "([A-Za-z]+)""#).unwrap();
    let wanted: BTreeSet<&str> = literal.captures_iter(of_events).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(wanted.len() > 50, "{wanted:?}");
    let page = fs::read_to_string(format!("{ROOT}/docs/reference/events.md")).unwrap();
    let row = Regex::new(r"(?m)^\| `([A-Za-z]+)` \|").unwrap();
    let found: BTreeSet<&str> = row.captures_iter(&page).map(|found| found.get(1).unwrap().as_str()).collect();
    assert_eq!(wanted, found);
}
