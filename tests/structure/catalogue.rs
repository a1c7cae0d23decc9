//! Names of kinds and reasons are in the catalogue of the crate `api` only.

use std::{collections::BTreeSet, path::Path};

use mcm::api::{
    kinds::KINDS,
    reasons::{
        ConditionReason, DeletableReason, EventReason, PauseReason, ProviderCondition, ProviderReason,
        StandInCondition, StandInReason, VmReason,
    },
};

use crate::{
    none, room_of, root,
    tree::{Tree, product_of},
};

/// Texts that are also something else: types of conditions, phases and strategies of other programs.
const OF_OTHERS: [&str; 6] =
    ["InPlaceUpdateFailed", "InfrastructureReady", "NodeHealthy", "RollingOut", "ScalingDown", "ScalingUp"];

#[test]
fn no_file_outside_the_catalogue_has_the_name_of_a_kind_in_paths() {
    let names = catalogued_plurals();
    assert!(names.contains("machinedeployments") && names.contains("mcmmachines"), "{names:?}");
    none(&found_in(&Tree::read(root()), &names));
    let planted = Tree::of(&[("rules/a.rs", "const KIND: &str = \"machinesets\";\n")]);
    assert_eq!(found_in(&planted, &names), ["rules/a.rs:1: machinesets"]);
}

#[test]
fn no_file_outside_the_catalogue_has_the_text_of_a_reason() {
    let texts = catalogued_reasons();
    assert!(texts.contains("ClassMissing") && texts.contains("CoreProviderPresent"), "{texts:?}");
    none(&found_in(&Tree::read(root()), &texts));
    let planted = Tree::of(&[("insight/a.rs", "// of \"VMLost\"\nlet is_lost = reason == \"VMLost\";\n")]);
    assert_eq!(found_in(&planted, &texts), ["insight/a.rs:2: VMLost"]);
}

/// Names in paths that no other text has.
fn catalogued_plurals() -> BTreeSet<&'static str> {
    KINDS.iter().map(|kind| kind.plural).filter(|plural| plural.len() > 10 && *plural != "deployments").collect()
}

/// Reasons and types of conditions of two words and more.
fn catalogued_reasons() -> BTreeSet<&'static str> {
    let all = [
        ConditionReason::ALL.iter().map(|one| one.as_str()).collect::<Vec<_>>(),
        DeletableReason::ALL.iter().map(|one| one.as_str()).collect(),
        EventReason::ALL.iter().map(|one| one.as_str()).collect(),
        PauseReason::ALL.iter().map(|one| one.as_str()).collect(),
        ProviderCondition::ALL.iter().map(|one| one.as_str()).collect(),
        ProviderReason::ALL.iter().map(|one| one.as_str()).collect(),
        StandInCondition::ALL.iter().map(|one| one.as_str()).collect(),
        StandInReason::ALL.iter().map(|one| one.as_str()).collect(),
        VmReason::ALL.iter().map(|one| one.as_str()).collect(),
    ];
    let has_words = |text: &&str| text.chars().skip(1).any(char::is_uppercase) && !OF_OTHERS.contains(text);
    all.into_iter().flatten().filter(has_words).collect()
}

/// The places of literals that are exactly one of these texts. Derive macros take only literals, and drivers name kinds of their clouds.
fn found_in(tree: &Tree, texts: &BTreeSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree
        .files()
        .filter(|(file, _)| !["api", "drivers"].contains(&room_of(file).as_str()) && !file.ends_with("testing.rs"))
    {
        for (number, line) in (1..).zip(product_of(text).lines()).filter(|(_, line)| !is_exempt(line)) {
            let literals = line.split('"').skip(1).step_by(2).filter(|literal| texts.contains(literal));
            found.extend(literals.map(|literal| format!("{}:{number}: {literal}", place_of(file))));
        }
    }
    found
}

fn is_exempt(line: &str) -> bool {
    let line = line.trim_start();
    ["//", "plural = ", "singular = "].iter().any(|head| line.starts_with(head))
}

fn place_of(file: &Path) -> String {
    file.display().to_string()
}
