//! MachineHealthCheck: it has no MCM counterpart, but becomes four fields of each template it covers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::Value;

use super::{
    defaults, health,
    keys::{MetadataMap, without_bookkeeping},
    metadata::{filled, namespace},
    notes::ConversionNotes,
    report::ConversionReport,
    template::{TemplateLocation, TemplateOwner},
};
use crate::types::{CORE_GROUP, Checks, MachineDeployment, MachineHealthCheck, MachineHealthCheckSpec, names};
use mcm_api::{labels, selector::Selector};

const KIND: &str = "MachineHealthCheck";
/// Where the health check is noted on a deployment or set.
const NOTED: &str = "machineHealthCheck";

/// The machines of one owner, as a health check selects them.
#[derive(Debug)]
pub(super) struct OwnerMachineLabels {
    labels: MetadataMap,
    /// Labels that differ between the machines of the owner.
    varying: &'static [&'static str],
}

impl OwnerMachineLabels {
    /// The machines of a deployment.
    pub(super) fn of_deployment(template: &MetadataMap, name: &str, cluster: &str) -> Self {
        let own = [(names::DEPLOYMENT_NAME, name), (names::CLUSTER_NAME, cluster)];
        Self { labels: with(template, own), varying: &[names::SET_NAME, labels::TEMPLATE_HASH] }
    }

    /// The machines of a set without a deployment.
    pub(super) fn of_set(template: &MetadataMap, name: &str, cluster: &str) -> Self {
        let own = [(names::SET_NAME, name), (names::CLUSTER_NAME, cluster)];
        Self { labels: with(template, own), varying: &[] }
    }

    /// One machine.
    pub(super) fn of_machine(labels: &MetadataMap, cluster: &str) -> Self {
        Self { labels: with(labels, [(names::CLUSTER_NAME, cluster)]), varying: &[] }
    }

    /// The machines that a health check covers. A health check is for the machines of its cluster.
    fn covered_by(&self, check: &MachineHealthCheckSpec) -> HealthCheckCoverage {
        if self.labels.get(names::CLUSTER_NAME) != Some(&check.cluster_name) {
            return HealthCheckCoverage::None;
        }
        let mut fixed = check.selector.clone();
        if let Some(labels) = &mut fixed.match_labels {
            labels.retain(|key, _| !self.varying.contains(&key.as_str()));
        }
        if let Some(expressions) = &mut fixed.match_expressions {
            expressions.retain(|one| !self.varying.contains(&one.key.as_str()));
        }
        match Selector::parse(Some(&fixed)) {
            Err(_) => HealthCheckCoverage::Unknown,
            Ok(parsed) if !parsed.matches(Some(&self.labels)) => HealthCheckCoverage::None,
            Ok(_) if fixed == check.selector => HealthCheckCoverage::All,
            Ok(_) => HealthCheckCoverage::Unknown,
        }
    }
}

/// A health check covers machines of a deployment, perhaps only some of them.
pub fn may_cover(check: &MachineHealthCheck, deployment: &MachineDeployment) -> bool {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let labels = &deployment.spec.template.metadata.labels;
    OwnerMachineLabels::of_deployment(labels, name, &deployment.spec.cluster_name).covered_by(&check.spec)
        != HealthCheckCoverage::None
}

/// How many machines of an owner a health check covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HealthCheckCoverage {
    All,
    None,
    /// Some of them, perhaps.
    Unknown,
}

fn with<const N: usize>(labels: &MetadataMap, own: [(&str, &str); N]) -> MetadataMap {
    let mut labels = labels.clone();
    labels.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// The checks that cover an owner. Notes the health check, unless it equals the generated one.
pub(super) fn covering(
    coverage: &OwnerMachineLabels,
    place: &TemplateLocation<'_>,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> Option<Checks> {
    let mut found: Option<MachineHealthCheck> = None;
    for document in place.input.documents.iter().filter(|one| one.group == CORE_GROUP && one.kind == KIND) {
        if document.namespace != place.namespace {
            continue;
        }
        // The health check has a separate report.
        let mut problems = ConversionReport::new(KIND, document.name);
        let Some(mut check) = document.decode::<MachineHealthCheck>(&mut problems) else {
            let reason = format!("{KIND} {} cannot be read, and may cover its machines", document.name);
            report.refuse("", reason, "correct it");
            continue;
        };
        defaults::health_check(&mut check);
        health::check(&check.spec, &mut problems);
        match coverage.covered_by(&check.spec) {
            HealthCheckCoverage::None => continue,
            HealthCheckCoverage::Unknown => {
                let reason = format!("{KIND} {} may select some of its machines and not others", document.name);
                report.refuse("", reason, "MCM has one set of settings for all machines: select by another label");
                continue;
            }
            HealthCheckCoverage::All => {}
        }
        if !problems.refusals.is_empty() {
            report.refuse("", format!("{KIND} {} cannot be converted", document.name), "see its refusals");
        }
        if let Some(other) = &found {
            let other = other.metadata.name.clone().unwrap_or_default();
            let reason = format!("two health checks select its machines, {other} and {}", document.name);
            report.refuse("", reason, "MCM has one: merge them");
            continue;
        }
        found = Some(check);
    }
    let check = found?;
    let noted = MachineHealthCheck { metadata: identity(&check.metadata), spec: check.spec, status: None };
    // Health checks cover sets; natively each Machine repeats the settings of its set.
    if place.owner != TemplateOwner::Machine && noted != plain(noted.spec.checks.clone(), place) {
        notes.note(NOTED, &noted);
    }
    Some(noted.spec.checks)
}

/// The health check of a native deployment or set.
pub(super) fn of_owner(
    checks: Option<Checks>,
    place: &TemplateLocation<'_>,
    notes: &mut ConversionNotes,
) -> Option<Value> {
    let noted = notes.take::<MachineHealthCheck>(NOTED);
    let checks = checks?;
    let check = match noted {
        Some(mut noted) => {
            // Notes are annotations, which any client may write.
            noted.metadata.namespace = namespace(place.namespace);
            MachineHealthCheck { spec: MachineHealthCheckSpec { checks, ..noted.spec }, ..noted }
        }
        None => plain(checks, place),
    };
    serde_json::to_value(check).ok()
}

/// The health check of a deployment or set that has no other.
fn plain(checks: Checks, place: &TemplateLocation<'_>) -> MachineHealthCheck {
    let label = if place.owner == TemplateOwner::Set { names::SET_NAME } else { names::DEPLOYMENT_NAME };
    let selector = LabelSelector {
        match_labels: Some([(label.to_owned(), place.name.to_owned())].into()),
        match_expressions: None,
    };
    let metadata = ObjectMeta {
        name: Some(place.name.to_owned()),
        namespace: namespace(place.namespace),
        labels: Some([(names::CLUSTER_NAME.to_owned(), place.cluster.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let spec = MachineHealthCheckSpec {
        cluster_name: place.cluster.to_owned(),
        selector,
        checks,
        ..MachineHealthCheckSpec::default()
    };
    MachineHealthCheck { metadata, spec, status: None }
}

/// Checks a health check by itself: its fields, and that it covers a machine.
pub(super) fn check(check: &MachineHealthCheck, covers: &[OwnerMachineLabels], report: &mut ConversionReport) {
    health::check(&check.spec, report);
    if let Err(error) = Selector::parse(Some(&check.spec.selector)) {
        report.refuse("spec.selector", error.to_string(), "correct it");
    } else if covers.iter().all(|coverage| coverage.covered_by(&check.spec) == HealthCheckCoverage::None) {
        let reason = "selects no machine of the deployments, sets and machines among the objects";
        report.refuse("spec.selector", reason, "add what it selects");
    }
}

fn identity(meta: &ObjectMeta) -> ObjectMeta {
    let copied = |keys: &Option<MetadataMap>| filled(without_bookkeeping(keys.clone()));
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        labels: copied(&meta.labels),
        annotations: copied(&meta.annotations),
        ..ObjectMeta::default()
    }
}
