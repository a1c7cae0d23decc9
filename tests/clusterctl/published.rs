//! Templates that other infrastructure providers publish: the documentation has the result of the conversion of each.
//!
//! They are read where Go keeps the modules of the providers. `UPDATE_DOCS=1` rewrites the table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    scene::{KUBERNETES, documents},
    support::program::MCM,
    world::{World, play},
};

const PAGE: &str = "docs/cluster-api/conversion.md";
const HEAD: &str = "| `--to capi` | `--to native` | CAPA | CAPG |\n|---|---|---|---|\n";
/// Folders that say nothing about a template.
const PLAIN_FOLDERS: [&str; 7] = [
    "e2e_test_templates",
    "clusterclassbase",
    "withoutclusterclass",
    "v1beta1",
    "infrastructure-aws",
    "infrastructure-gcp",
    "eks",
];
/// Flags for values that the templates leave open.
const ANSWERS: [&str; 12] = [
    "--credentials-secret",
    "cloud",
    "--bootstrap-secret",
    "join",
    "--image",
    "ami-0123",
    "--subnet",
    "subnet-0123",
    "--security-groups",
    "sg-01",
    "--root-volume",
    "20:gp3",
];

/// The folders of both providers, in the order of the columns.
fn modules() -> Vec<PathBuf> {
    let folders = std::env::var("MCM_TEST_OTHER_PROVIDERS")
        .unwrap_or_else(|_| panic!("run these tests with hack/test-clusterctl"));
    let root = |crds: &str| Path::new(crds).ancestors().nth(3).unwrap().to_owned();
    folders.lines().map(root).collect()
}

/// The templates below a folder, by their names in the table.
fn templates(module: &Path) -> BTreeMap<String, PathBuf> {
    let mut all = BTreeMap::new();
    for (folder, prefix) in [("templates", ""), ("test/e2e/data", "e2e/")] {
        find(&module.join(folder), prefix, &mut all);
    }
    assert!(all.len() > 15, "{module:?}: {all:?}");
    all
}

fn find(folder: &Path, prefix: &str, all: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap().to_owned();
        if entry.is_dir() {
            match name.as_str() {
                // Parts of the other files.
                "kustomize_sources" => {}
                plain if PLAIN_FOLDERS.contains(&plain) => find(&entry, prefix, all),
                _ => find(&entry, &format!("{prefix}{name}/"), all),
            }
        } else if let Some(stem) = name.strip_suffix(".yaml").filter(|stem| stem.starts_with("cluster")) {
            let short = stem.strip_prefix("cluster-template-").unwrap_or(stem);
            all.insert(format!("{prefix}{short}"), entry);
        }
    }
}

/// The objects of a template, as clusterctl writes them.
fn generated(world: &World, template: &Path) -> Vec<Value> {
    let text = fs::read_to_string(template).unwrap();
    let mut command = world.command(&["generate", "yaml", "--from", template.to_str().unwrap()]);
    for name in variables(&text) {
        // Objects with the names of different variables have different names.
        let text = name.to_lowercase().replace('_', "-");
        let value = match name.as_str() {
            "KUBERNETES_VERSION" => KUBERNETES,
            name if name.contains("CIDR") => "10.0.0.0/16",
            name if ["COUNT", "SIZE", "MINIMUM", "REPLICAS", "PORT"].iter().any(|part| name.contains(part)) => "3",
            _ => text.as_str(),
        };
        command.env(&name, value);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{template:?}: {}", String::from_utf8_lossy(&output.stderr));
    let mut all = documents(&String::from_utf8(output.stdout).unwrap());
    for object in &mut all {
        if object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!("default");
        }
    }
    all
}

/// The names of variables in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let names = text.split("${").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        rest[..end].to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The ClusterClass of the topology in a template that does not contain it.
fn class_of(objects: &[Value]) -> Option<String> {
    let cluster = objects.iter().find(|object| object["kind"] == "Cluster")?;
    let topology = &cluster["spec"]["topology"];
    let name = topology["class"].as_str().or_else(|| topology["classRef"]["name"].as_str())?;
    let has = objects.iter().any(|object| object["kind"] == "ClusterClass" && object["metadata"]["name"] == name);
    (!has).then(|| name.to_owned())
}

/// The result of a conversion: the workers have another kind, or all objects are as before, or nothing is written.
fn result(target: &str, file: &Path) -> &'static str {
    let mut command = Command::new(MCM);
    command.args(["convert", "--to", target, "-f"]).arg(file).args(ANSWERS).args(["--zone", "x"]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    match output.status.success() {
        false => "refused",
        true if text.contains("kind: MachineClass\n") || text.contains("kind: MCMMachine") => "converted",
        true => "unchanged",
    }
}

/// The cell of a row: the number of templates and their names.
fn cell(names: &[String]) -> String {
    match names.len() {
        0 => String::new(),
        count => format!("{count}: {}", names.join(", ")),
    }
}

#[test]
fn each_published_template_is_converted_or_refused_as_documented() {
    play(async |world: &'static World| {
        let folder = tempfile::tempdir().unwrap();
        let mut rows: BTreeMap<(&str, &str), [Vec<String>; 2]> = BTreeMap::new();
        for (column, module) in modules().iter().enumerate() {
            let all = templates(module).into_iter().map(|(name, path)| (name, generated(world, &path)));
            let all: BTreeMap<String, Vec<Value>> = all.collect();
            let classes = all.values().flatten().filter(|object| object["kind"] == "ClusterClass");
            let classes: BTreeMap<&str, &Vec<Value>> = classes
                .map(|class| class["metadata"]["name"].as_str().unwrap())
                .map(|name| (name, all.values().find(|file| contains_class(file, name)).unwrap()))
                .collect();
            for (name, objects) in &all {
                let of_class = class_of(objects).and_then(|class| classes.get(class.as_str()).copied());
                let items: Vec<&Value> = objects.iter().chain(of_class.into_iter().flatten()).collect();
                let file = folder.path().join("template.json");
                let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
                fs::write(&file, list.to_string()).unwrap();
                let results = (result("capi", &file), result("native", &file));
                rows.entry(results).or_default()[column].push(name.clone());
            }
        }
        let row = |((capi, native), [aws, gcp]): (&(&str, &str), &[Vec<String>; 2])| {
            format!("| {capi} | {native} | {} | {} |\n", cell(aws), cell(gcp))
        };
        let table: String = rows.iter().map(row).collect();
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
        let text = fs::read_to_string(&page).unwrap();
        let (before, rest) = text.split_once(HEAD).unwrap();
        let end = rest.find("\n\n").unwrap() + 1;
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&page, format!("{before}{HEAD}{table}{}", &rest[end..])).unwrap();
        }
        assert_eq!(&rest[..end], table, "run UPDATE_DOCS=1 hack/test-clusterctl published");
    });
}

fn contains_class(file: &[Value], name: &str) -> bool {
    file.iter().any(|object| object["kind"] == "ClusterClass" && object["metadata"]["name"] == name)
}

/// The table is about the versions that the tests read.
#[test]
fn the_documentation_names_the_versions_of_the_published_templates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pinned = fs::read_to_string(root.join("hack/controlplane/other-providers/go.mod")).unwrap();
    let page = fs::read_to_string(root.join(PAGE)).unwrap();
    for (name, module) in [("CAPA", "cluster-api-provider-aws/v2 "), ("CAPG", "cluster-api-provider-gcp ")] {
        let (_, rest) = pinned.split_once(module).unwrap();
        let version = rest.lines().next().unwrap();
        assert!(page.contains(&format!("{name} {version}")), "{name} {version}");
    }
}
