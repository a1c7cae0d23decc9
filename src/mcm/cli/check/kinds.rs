//! Checks that an API server serves the kinds as this version needs them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};

use super::finding::{CheckFinding, some_of};
use crate::api::{
    crd::{crds, roots},
    machine::VERSION,
};

const CHECK: &str = "kinds";
const INSTALL: &str = "mcm crd | kubectl apply --server-side --force-conflicts -f -";
/// Fields of every object.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The definition of a kind in a cluster; `None` if it does not exist, an error if it could not be read.
pub(super) type CrdLookup = Result<Option<CustomResourceDefinition>, String>;

/// Findings about the resources that are served in our version, such as `machines/status`, and the definitions of all kinds in
/// the order of [`crds`].
pub(super) fn judge(resources: &[String], definitions: &[CrdLookup]) -> Vec<CheckFinding> {
    let mut findings = Vec::new();
    let ours = crds();
    let mut missing = Vec::new();
    for crd in &ours {
        let plural = &crd.spec.names.plural;
        let has_status = crd.spec.versions.iter().any(|version| version.subresources.is_some());
        let needed = [Some(plural.clone()), has_status.then(|| format!("{plural}/status"))];
        missing.extend(needed.into_iter().flatten().filter(|name| !resources.contains(name)));
    }
    if !missing.is_empty() {
        findings.push(CheckFinding::problem(CHECK, format!("not served: {}", some_of(&missing))).then(INSTALL));
    }
    for (mine, there) in ours.iter().zip(definitions) {
        if let Ok(Some(there)) = there {
            findings.extend(defined(mine, there));
        }
    }
    if let Some(cause) = definitions.iter().find_map(|one| one.as_ref().err()) {
        findings.push(CheckFinding::unknown(
            CHECK,
            format!("definitions not compared with those of this version: {cause}"),
        ));
    }
    if findings.is_empty() {
        findings
            .push(CheckFinding::good(CHECK, format!("{0} of {0} served, with all fields of this version", ours.len())));
    }
    findings
}

fn defined(mine: &CustomResourceDefinition, there: &CustomResourceDefinition) -> Vec<CheckFinding> {
    let kind = &mine.spec.names.kind;
    let mut findings = Vec::new();
    let conditions = there.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let bad = conditions.iter().find(|one| {
        let wanted = if one.type_ == "Established" || one.type_ == "NamesAccepted" { "True" } else { "False" };
        ["Established", "NamesAccepted", "NonStructuralSchema"].contains(&one.type_.as_str()) && one.status != wanted
    });
    if let Some(bad) = bad {
        let message = bad.message.as_deref().unwrap_or_default();
        findings.push(CheckFinding::problem(CHECK, format!("{kind} has {}={}: {message}", bad.type_, bad.status)));
    }
    let others: Vec<&str> =
        there.status.as_ref().and_then(|status| status.stored_versions.as_deref()).map_or_else(Vec::new, |all| {
            all.iter().map(String::as_str).filter(|version| *version != VERSION).collect()
        });
    if !others.is_empty() {
        findings.push(CheckFinding::note(CHECK, format!("{kind} is also stored in version {}", others.join(", "))));
    }
    let lacking = lacking(mine.clone(), there.clone());
    if !lacking.is_empty() {
        let text = format!("{kind} lacks fields of this version, which the API server drops: {}", some_of(&lacking));
        findings.push(CheckFinding::note(CHECK, text).then(INSTALL));
    }
    findings
}

/// Fields of our definition that another one lacks.
fn lacking(mut mine: CustomResourceDefinition, mut there: CustomResourceDefinition) -> Vec<String> {
    there.spec.versions.retain(|version| version.name == VERSION);
    let mut found = Vec::new();
    for (mine, there) in roots(&mut mine).zip(roots(&mut there)) {
        push_lacking(mine, there, "", &mut found);
    }
    found
}

fn push_lacking(mine: &JSONSchemaProps, there: &JSONSchemaProps, path: &str, found: &mut Vec<String>) {
    let is_open = there.x_kubernetes_preserve_unknown_fields == Some(true) || there.additional_properties.is_some();
    if is_open {
        return;
    }
    for (name, field) in mine.properties.iter().flatten() {
        if path.is_empty() && COMMON.contains(&name.as_str()) {
            continue;
        }
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match there.properties.as_ref().and_then(|all| all.get(name)) {
            Some(known) => push_lacking(field, known, &path, found),
            None => found.push(path),
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(mine)), Some(JSONSchemaPropsOrArray::Schema(there))) =
        (&mine.items, &there.items)
    {
        push_lacking(mine, there, &format!("{path}[]"), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::check::finding::CheckLevel;

    fn served() -> Vec<String> {
        let names = ["machineclasses", "machines", "machinesets", "machinedeployments"];
        names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}/status")]).collect()
    }

    fn ours() -> Vec<CrdLookup> {
        crds().into_iter().map(|crd| Ok(Some(crd))).collect()
    }

    #[test]
    fn our_own_definitions_are_good() {
        let findings = judge(&served(), &ours());
        assert_eq!(findings, [CheckFinding::good(CHECK, "4 of 4 served, with all fields of this version")]);
    }

    #[test]
    fn a_kind_that_is_not_served_is_a_problem() {
        let findings = judge(&served()[..4], &ours());
        assert_eq!(findings[0].result, CheckLevel::Problem);
        assert!(findings[0].text.starts_with("not served: machinesets"), "{findings:?}");
    }

    #[test]
    fn fields_that_an_older_definition_lacks_are_named() {
        let mut definitions = ours();
        if let Ok(Some(crd)) = &mut definitions[1] {
            for root in roots(crd) {
                let spec = root.properties.as_mut().unwrap().get_mut("spec").unwrap();
                assert!(spec.properties.as_mut().unwrap().remove("drainTimeout").is_some());
            }
        }
        let findings = judge(&served(), &definitions);
        assert_eq!((findings.len(), findings[0].result), (1, CheckLevel::Note));
        assert!(findings[0].text.ends_with("which the API server drops: spec.drainTimeout"), "{findings:?}");
    }

    #[test]
    fn a_definition_that_may_not_be_read_is_an_open_question() {
        let findings = judge(&served(), &[Err("forbidden".to_owned())]);
        assert_eq!((findings.len(), findings[0].result), (1, CheckLevel::Unknown));
    }
}
