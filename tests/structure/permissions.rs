//! The files of `config/permissions` have the permissions of the page of their driver, and the policy of AWS has the actions of its code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use mcm_driver::testing::profile::permissions_in;
use serde_json::Value;

use crate::root;

/// Permissions that no call names: those of the role of a VM, and of the tags of a Secret.
const IMPLIED: [&str; 2] = ["iam:PassRole", "secretsmanager:TagResource"];
/// A permission on single objects, which a custom role of the project leaves out.
const ON_OBJECTS: &str = "iam.serviceAccounts.actAs";
/// Verbs with which the methods of Amazon's SDK begin, but for the request that needs no permission.
const VERBS: [&str; 8] =
    ["assign_", "create_", "delete_", "describe_", "get_instance", "modify_", "run_", "terminate_"];

/// The permissions of each cloud, by the name of its file.
fn permissions() -> BTreeMap<String, BTreeSet<String>> {
    let files = fs::read_dir(root().join("config/permissions")).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| {
            let file: Value = serde_yaml_ng::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), permissions_in(&file))
        })
        .collect()
}

/// The permissions in a table of a page: all names in its first column.
fn named(page: &str) -> BTreeSet<String> {
    let section = page.split_once("\n## Permissions\n").map_or("", |(_, rest)| rest);
    let section = section.split("\n##").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `").and_then(|row| row.split(" | ").next()));
    rows.flat_map(|cell| format!("`{cell}").split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The pages of Equinix Metal, metal-stack and OpenStack have calls in prose; their suites hold the files against the calls.
#[test]
fn each_cloud_has_a_file_with_the_permissions_of_its_page() {
    let files = permissions();
    let clouds = fs::read_dir(root().join("src/drivers")).unwrap().map(|entry| entry.unwrap().file_name());
    let clouds: BTreeSet<String> = clouds.map(|name| name.into_string().unwrap()).collect();
    let stems = files.keys().map(|file| file.split('.').next().unwrap().to_owned());
    assert_eq!(stems.collect::<BTreeSet<_>>(), clouds);
    for (file, granted) in files {
        let cloud = file.split('.').next().unwrap();
        let page = fs::read_to_string(root().join(format!("docs/drivers/{cloud}.md"))).unwrap();
        assert!(page.contains(&format!("(../../config/permissions/{file})")), "{cloud}: the page has no link");
        assert!(!granted.is_empty(), "{file} is empty");
        if !["equinix-metal", "metal-stack", "openstack"].contains(&cloud) {
            let mut named = named(&page);
            named.remove(ON_OBJECTS);
            assert_eq!(granted, named, "{file}");
        }
    }
}

/// `DescribeImages` of `describe_images`.
fn action_of(method: &str) -> String {
    let words = method.split('_').map(|word| word[..1].to_uppercase() + &word[1..]);
    words.collect()
}

#[test]
fn the_policy_of_aws_has_the_actions_of_its_code_and_no_others() {
    let folder = root().join("src/drivers/aws");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let code: String = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    let methods = code.split('.').filter_map(|text| text.split_once("()")).map(|(method, _)| method);
    let methods = methods.filter(|method| method.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric()));
    let sent: BTreeSet<String> =
        methods.filter(|method| VERBS.iter().any(|verb| method.starts_with(verb))).map(action_of).collect();
    assert!(sent.len() > 8, "{sent:?}");
    let granted = permissions().remove("aws.json").unwrap();
    let action = |name: &String| name.split_once(':').unwrap().1.to_owned();
    let actions: BTreeSet<String> = granted.iter().map(action).collect();
    assert_eq!(sent.difference(&actions).collect::<Vec<_>>(), [""; 0]);
    let is_sent = |name: &&String| {
        let action = action(name);
        IMPLIED.contains(&name.as_str()) || sent.contains(&action) || code.contains(&format!("\"{action}\""))
    };
    let needless: Vec<&String> = granted.iter().filter(|name| !is_sent(name)).collect();
    assert_eq!(needless, [""; 0]);
}
