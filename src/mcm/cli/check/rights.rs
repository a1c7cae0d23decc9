//! The rights that the controllers need, and whether an identity has them.

use std::collections::BTreeMap;

use super::finding::{CheckFinding, CheckLevel, some_of};
use crate::api::kinds::{self, ResourceKind};

/// The cluster of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RuleCluster {
    Control,
    Target,
}

/// The namespaces of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleScope {
    /// The control namespace.
    Control,
    /// All of them, or none.
    Cluster,
    /// One with a fixed name.
    Named(&'static str),
}

/// Verbs that a resource allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PermissionRule {
    pub cluster: RuleCluster,
    pub kind: ResourceKind,
    /// Empty for the object itself.
    pub subresource: &'static str,
    /// Empty for any name.
    pub name: &'static str,
    pub of: RuleScope,
    pub verbs: &'static [&'static str],
}

impl PermissionRule {
    /// As roles name it, such as `pods/eviction`.
    fn resource(&self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{}{slash}{}", self.kind.plural, self.subresource)
    }
}

const fn rule(
    cluster: RuleCluster,
    of: RuleScope,
    kind: ResourceKind,
    subresource: &'static str,
    verbs: &'static [&'static str],
) -> PermissionRule {
    PermissionRule { cluster, kind, subresource, name: "", of, verbs }
}

const CHANGE: &[&str] = &["get", "list", "watch", "patch"];
const OWN: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
const PATCH: &[&str] = &["patch"];

/// The rights that mcm uses. `config/rbac` is a superset.
pub(super) const RULES: [PermissionRule; 20] = [
    rule(RuleCluster::Control, RuleScope::Control, kinds::MACHINE_CLASSES, "", CHANGE),
    rule(RuleCluster::Control, RuleScope::Control, kinds::MACHINE_DEPLOYMENTS, "", CHANGE),
    rule(RuleCluster::Control, RuleScope::Control, kinds::MACHINE_DEPLOYMENTS, "status", PATCH),
    rule(RuleCluster::Control, RuleScope::Control, kinds::MACHINE_SETS, "", OWN),
    rule(RuleCluster::Control, RuleScope::Control, kinds::MACHINE_SETS, "status", PATCH),
    rule(RuleCluster::Control, RuleScope::Control, kinds::MACHINES, "", OWN),
    rule(RuleCluster::Control, RuleScope::Control, kinds::MACHINES, "status", PATCH),
    rule(RuleCluster::Control, RuleScope::Control, kinds::SECRETS, "", CHANGE),
    rule(RuleCluster::Control, RuleScope::Control, kinds::EVENTS, "", &["create", "patch"]),
    rule(RuleCluster::Control, RuleScope::Control, kinds::LEASES, "", &["create"]),
    PermissionRule {
        name: "machine-controller",
        ..rule(RuleCluster::Control, RuleScope::Control, kinds::LEASES, "", &["get", "update"])
    },
    PermissionRule {
        name: "machine-controller-manager",
        ..rule(RuleCluster::Control, RuleScope::Control, kinds::LEASES, "", &["get", "update"])
    },
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::NODES, "", &["get", "list", "watch", "patch", "delete"]),
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::NODES, "status", PATCH),
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::PODS, "", &["get", "list", "delete"]),
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::PODS, "eviction", &["create"]),
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::PERSISTENT_VOLUME_CLAIMS, "", &["list", "watch"]),
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::PERSISTENT_VOLUMES, "", &["list", "watch"]),
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::POD_DISRUPTION_BUDGETS, "", &["list", "watch"]),
    rule(RuleCluster::Target, RuleScope::Cluster, kinds::VOLUME_ATTACHMENTS, "", &["get", "list", "watch", "delete"]),
];

/// The right to see others with the same cluster tag. The Go programs do not have it.
pub(super) const SEE_OTHERS: PermissionRule =
    rule(RuleCluster::Control, RuleScope::Cluster, kinds::MACHINE_CLASSES, "", &["list"]);

/// The right to create bootstrap tokens, which only user data with the placeholder need.
pub(super) const MAKE_TOKENS: PermissionRule =
    rule(RuleCluster::Target, RuleScope::Named("kube-system"), kinds::SECRETS, "", &["create", "delete", "get"]);

/// The answer of the API server for a verb of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReviewAnswer {
    Allowed,
    Denied,
    /// It was not asked, or did not answer.
    Unknown(String),
}

/// The identity that was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReviewedIdentity {
    /// As the API server names it.
    pub name: String,
    /// Managers run as this identity: it is a ServiceAccount.
    pub is_manager: bool,
}

impl ReviewedIdentity {
    /// The identity of the requests of this command.
    pub(super) fn me(name: &str) -> Self {
        Self { name: name.to_owned(), is_manager: name.starts_with(SERVICE_ACCOUNT) }
    }

    /// A ServiceAccount.
    pub(super) fn service_account(namespace: &str, name: &str) -> Self {
        Self { name: format!("{SERVICE_ACCOUNT}{namespace}:{name}"), is_manager: true }
    }

    /// The last part of the name.
    fn short(&self) -> &str {
        match self.name.strip_prefix(SERVICE_ACCOUNT) {
            Some(rest) => rest.split_once(':').map_or(rest, |(_, name)| name),
            None => &self.name,
        }
    }
}

/// The beginning of the user name of a ServiceAccount.
pub(super) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The findings of one cluster.
pub(super) fn judge(
    who: &ReviewedIdentity,
    cluster: RuleCluster,
    answers: &[(PermissionRule, &str, ReviewAnswer)],
) -> Vec<CheckFinding> {
    const CHECK: &str = "permissions";
    let is_needed = |rule: &PermissionRule| rule.cluster == cluster && ![SEE_OTHERS, MAKE_TOKENS].contains(rule);
    let of_cluster: Vec<_> = answers.iter().filter(|(rule, _, _)| is_needed(rule)).collect();
    let place = if cluster == RuleCluster::Target { " in the target cluster" } else { "" };
    let (mut denied, mut open) = (BTreeMap::<String, Vec<&str>>::new(), Vec::new());
    for (rule, verb, answer) in &of_cluster {
        match answer {
            ReviewAnswer::Allowed => {}
            ReviewAnswer::Denied => denied.entry(named(rule)).or_default().push(verb),
            ReviewAnswer::Unknown(cause) => open.push(cause.as_str()),
        }
    }
    let mut findings = Vec::new();
    if !denied.is_empty() {
        let rights: Vec<String> =
            denied.iter().map(|(resource, verbs)| format!("{} {resource}", verbs.join("/"))).collect();
        let text = format!("{} may not do everything that mcm does{place}: {}", who.short(), some_of(&rights));
        findings.push(if who.is_manager {
            CheckFinding::problem(CHECK, text).then("give it the rights of config/rbac")
        } else {
            CheckFinding::note(CHECK, format!("{text}. Only a manager needs this"))
                .then("mcm check --service-account machine-controller-manager")
        });
    }
    if let Some(cause) = open.first() {
        findings.push(CheckFinding::unknown(CHECK, format!("of {}{place} not checked: {cause}", who.short())));
    }
    if findings.is_empty() && !of_cluster.is_empty() {
        let number = of_cluster.len();
        let text = format!("{} may do everything that mcm does{place} ({number} rights checked)", who.short());
        findings.push(CheckFinding::new(CHECK, CheckLevel::Good, text));
    }
    let lacks = |wanted: PermissionRule| {
        let is_denied = |(rule, _, answer): &(PermissionRule, &str, ReviewAnswer)| {
            *rule == wanted && *answer == ReviewAnswer::Denied
        };
        wanted.cluster == cluster && who.is_manager && answers.iter().any(is_denied)
    };
    if lacks(MAKE_TOKENS) {
        let text = format!(
            "{} may not create bootstrap tokens{place}: machines whose user data have <<BOOTSTRAP_TOKEN>> wait",
            who.short()
        );
        findings.push(
            CheckFinding::note(CHECK, text)
                .then("if there are any: grant it, as in config/standalone/bootstrap-tokens.yaml"),
        );
    }
    if lacks(SEE_OTHERS) {
        let text = format!(
            "{} may not list machineclasses in all namespaces: orphan VMs without a marker are kept, unless the cluster tag \
             is the technical ID of a shoot, or --machine-safety-orphan-vms-sole-user is set",
            who.short()
        );
        findings.push(CheckFinding::note(CHECK, text).then("grant it, as in config/rbac/classes.yaml"));
    }
    findings
}

fn named(rule: &PermissionRule) -> String {
    let namespace = match rule.of {
        RuleScope::Named(namespace) => format!(" in {namespace}"),
        RuleScope::Control | RuleScope::Cluster => String::new(),
    };
    let name = if rule.name.is_empty() { String::new() } else { format!(" {}", rule.name) };
    format!("{}{name}{namespace}", rule.resource())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;

    const CONTROL: &str = include_str!("../../../../config/rbac/control.yaml");
    const TARGET: &str = include_str!("../../../../config/rbac/target.yaml");

    /// A role of the manifest allows the verb of the rule.
    fn is_granted(text: &str, rule: &PermissionRule, verb: &str) -> bool {
        let documents = serde_yaml_ng::Deserializer::from_str(text).map(|one| Value::deserialize(one).unwrap());
        let has = |list: &Value, wanted: &str| {
            list.as_array().is_some_and(|list| list.iter().any(|one| one.as_str() == Some(wanted)))
        };
        documents.flat_map(|one| one["rules"].as_array().cloned().unwrap_or_default()).any(|granted| {
            let names = &granted["resourceNames"];
            has(&granted["apiGroups"], rule.kind.group)
                && has(&granted["resources"], &rule.resource())
                && has(&granted["verbs"], verb)
                && (names.is_null() || has(names, rule.name))
        })
    }

    #[test]
    fn the_roles_of_the_repository_grant_each_right() {
        for rule in RULES.into_iter().chain([MAKE_TOKENS]) {
            let text = if rule.cluster == RuleCluster::Control { CONTROL } else { TARGET };
            for verb in rule.verbs {
                assert!(is_granted(text, &rule, verb), "{verb} {}", rule.resource());
            }
        }
    }

    #[test]
    fn a_manager_that_cannot_see_others_with_its_tag_is_told_which_rule_applies() {
        let who = ReviewedIdentity::service_account("shoot", "mcm");
        let with =
            |answer| judge(&who, RuleCluster::Control, &[answers(&[]), vec![(SEE_OTHERS, "list", answer)]].concat());
        let (allowed, denied) = (with(ReviewAnswer::Allowed), with(ReviewAnswer::Denied));
        assert_eq!((allowed.len(), denied.len()), (1, 2), "{denied:?}");
        assert_eq!(denied[0], allowed[0], "all that is needed is there");
        assert!(format!("{denied:?}").contains("may not list machineclasses in all namespaces"), "{denied:?}");
        assert!(is_granted(include_str!("../../../../config/rbac/classes.yaml"), &SEE_OTHERS, "list"));
    }

    fn answers(denied: &[&str]) -> Vec<(PermissionRule, &'static str, ReviewAnswer)> {
        let all = RULES.into_iter().chain([MAKE_TOKENS]);
        let all = all.flat_map(|rule| rule.verbs.iter().map(move |verb| (rule, *verb)));
        all.map(|(rule, verb)| {
            let is_denied = denied.contains(&rule.resource().as_str());
            (rule, verb, if is_denied { ReviewAnswer::Denied } else { ReviewAnswer::Allowed })
        })
        .collect()
    }

    #[test]
    fn a_service_account_without_a_right_is_a_problem() {
        let who = ReviewedIdentity::service_account("demo", "machine-controller-manager");
        let findings = judge(&who, RuleCluster::Control, &answers(&["machines"]));
        assert_eq!(findings[0].result, CheckLevel::Problem);
        assert_eq!(
            findings[0].text,
            "machine-controller-manager may not do everything that mcm does: get/list/watch/create/patch/delete machines"
        );
        assert_eq!(judge(&who, RuleCluster::Target, &answers(&["machines"]))[0].result, CheckLevel::Good);
    }

    #[test]
    fn a_user_without_a_right_is_a_note() {
        let findings =
            judge(&ReviewedIdentity::me("alice"), RuleCluster::Target, &answers(&["pods/eviction", "pods", "secrets"]));
        assert_eq!((findings[0].result, findings.len()), (CheckLevel::Note, 1));
        assert!(findings[0].text.contains("get/list/delete pods, create pods/eviction"), "{findings:?}");
    }

    #[test]
    fn a_manager_without_the_right_to_create_bootstrap_tokens_lacks_nothing_that_all_need() {
        let who = ReviewedIdentity::service_account("shoot", "mcm");
        let findings = judge(&who, RuleCluster::Target, &answers(&["secrets"]));
        let results: Vec<CheckLevel> = findings.iter().map(|finding| finding.result).collect();
        assert_eq!(results, [CheckLevel::Good, CheckLevel::Note]);
        assert!(findings[1].text.contains("may not create bootstrap tokens in the target cluster"), "{findings:?}");
    }

    #[test]
    fn a_review_that_is_refused_is_no_answer() {
        let unknown = vec![(RULES[0], "get", ReviewAnswer::Unknown("alice may not ask".to_owned()))];
        let findings = judge(&ReviewedIdentity::service_account("demo", "x"), RuleCluster::Control, &unknown);
        assert_eq!((findings[0].result, findings.len()), (CheckLevel::Unknown, 1));
    }
}
