//! MachinePool. Natively it is one MachineDeployment, or one for each zone.
//!
//! A pool is converted as if it consisted of deployments of Cluster API. The pool is noted on each native deployment,
//! and is restored only if it would result in exactly these deployments again. Otherwise they stay deployments.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    answers::TemplateQuestion,
    cloud, defaults,
    infrastructure::{bootstrap, content_of, zone_of},
    input::{ConversionInput, SourceDocument},
    keys::without_bookkeeping,
    machine_deployment,
    metadata::{filled, identity},
    notes::{self, MACHINE_POOL},
    options::ConversionOptions,
    report::{ConversionReport, ObjectConversion},
    strategy,
    template::{TemplateLocation, TemplateOwner},
};
use crate::types::{
    Bootstrap, ClassRef, INFRASTRUCTURE_GROUP, MCMMachinePool, MCMMachinePoolSpec, MCMMachineSpec, MCMMachineTemplate,
    MCMMachineTemplateSpec, MachineDeployment, MachineDeploymentSpec, MachinePool, ObjectRef, TemplateResource,
    names::{self, is_label_value},
};
use mcm_api::machine::{self, MachineClass};

const KIND: &str = "MCMMachinePool";
const TEMPLATE_KIND: &str = "MCMMachineTemplate";
const REFERENCE: &str = "spec.template.spec.infrastructureRef";

/// A pool as noted, without the number of its machines and the fields that controllers write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct NotedPool {
    pool: MachinePool,
    infrastructure: MCMMachinePool,
    /// The object of the bootstrap provider, in whose place a Secret has the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config_ref: Option<ObjectRef>,
    /// The pool of another provider, if it has one; then `infrastructure` has its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    foreign: Option<Value>,
}

/// Converts a pool. The deployments come first in the result.
pub(super) fn to_native(
    mut source: MachinePool,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    defaults::pool(&mut source);
    let Some((infrastructure, foreign)) = infrastructure_of(&source, input, options, report) else {
        return ObjectConversion::default();
    };
    let replicas = source.spec.replicas.unwrap_or_default();
    let config_ref = answered(&mut source, options);
    let noted = NotedPool { config_ref, foreign, ..NotedPool::from_pool(source, infrastructure, report) };
    let deployments = noted.deployments(replicas, input, options, report);
    let Ok(note) = serde_json::to_string(&noted) else { return ObjectConversion::default() };
    let mut objects = Vec::new();
    for (mut deployment, others) in deployments {
        deployment.metadata.annotations.get_or_insert_default().insert(MACHINE_POOL.to_owned(), note.clone());
        notes::check_size(&deployment.metadata, report);
        objects.extend(serde_json::to_value(deployment));
        objects.extend(others);
    }
    objects.into()
}

/// A pool that native deployments were made from.
#[derive(Debug)]
pub(super) struct RestoredPool {
    /// The deployments, by namespace and name.
    pub members: BTreeSet<(String, String)>,
    pub outcome: ObjectConversion,
}

/// All restored pools. Differences are reported for each of their deployments.
pub(super) fn restored(
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
) -> (Vec<RestoredPool>, ConversionReport) {
    let mut groups: BTreeMap<(&str, &str), Vec<&SourceDocument<'_>>> = BTreeMap::new();
    for document in input.documents.iter().filter(|one| one.group == machine::GROUP && one.kind == "MachineDeployment")
    {
        if let Some(note) = document.value["metadata"]["annotations"][MACHINE_POOL].as_str() {
            groups.entry((document.namespace, note)).or_default().push(document);
        }
    }
    let mut pools = Vec::new();
    let mut all_losses = ConversionReport::default();
    for ((namespace, note), members) in groups {
        let noted: Option<NotedPool> = serde_json::from_str(note).ok();
        let pool = noted.and_then(|noted| noted.in_namespace(namespace).restore(&members, input, options));
        if let Some(outcome) = pool {
            let members = members.iter().map(|one| (namespace.to_owned(), one.name.to_owned())).collect();
            pools.push(RestoredPool { members, outcome });
            continue;
        }
        for member in members {
            let mut report = ConversionReport::new(member.kind, member.name);
            report.lose(
                notes::annotation("", MACHINE_POOL),
                "the deployments differ from what their MachinePool became, or are not complete; they stay deployments",
                "delete the annotation, or undo the changes",
            );
            all_losses.losses.extend(report.losses);
        }
    }
    (pools, all_losses)
}

impl NotedPool {
    fn from_pool(pool: MachinePool, infrastructure: MCMMachinePool, report: &mut ConversionReport) -> Self {
        let mut noted = Self { pool, infrastructure, config_ref: None, foreign: None };
        noted.pool.metadata = kept(&noted.pool.metadata, report);
        noted.infrastructure.metadata = kept(&noted.infrastructure.metadata, report);
        noted.pool.spec.replicas = None;
        noted.pool.spec.provider_id_list.clear();
        noted.infrastructure.spec.provider_id_list.clear();
        (noted.pool.status, noted.infrastructure.status) = (None, None);
        noted
    }

    /// Notes are annotations, which any client may write.
    fn in_namespace(mut self, namespace: &str) -> Self {
        self.foreign = self.foreign.filter(|foreign| cloud::is_foreign_in(foreign, namespace));
        for metadata in [&mut self.pool.metadata, &mut self.infrastructure.metadata] {
            metadata.namespace = super::metadata::namespace(namespace);
        }
        self
    }

    /// The native deployments, each with its class and Secret, if these are derived.
    fn deployments(
        &self,
        replicas: i32,
        input: &ConversionInput<'_>,
        options: &ConversionOptions,
        report: &mut ConversionReport,
    ) -> Vec<(machine::MachineDeployment, Vec<Value>)> {
        let mut made = Vec::new();
        let name = self.pool.metadata.name.clone().unwrap_or_default();
        for (zone, replicas) in spread(replicas, &self.pool.spec.failure_domains) {
            let mut problems = report.empty();
            let deployment_name = zone.map_or_else(|| name.clone(), |zone| format!("{name}-{zone}"));
            if !is_label_value(&deployment_name) {
                let reason = format!("the name {deployment_name:?} of its deployment is not a label value");
                problems.refuse("metadata.name", reason, "use shorter names");
            }
            let template = self.template(zone, input);
            let deployment = self.deployment(deployment_name, zone, replicas);
            let outcome = machine_deployment::to_native(deployment, &input.with(&template), options, &mut problems);
            let mut objects = outcome.objects.into_iter();
            let native = objects.next().and_then(|native| serde_json::from_value(native).ok());
            report.add(problems);
            let Some(mut native): Option<machine::MachineDeployment> = native else { continue };
            if let Some(strategy) = &self.infrastructure.spec.strategy {
                native.spec.strategy = strategy.clone();
            }
            made.push((native, objects.collect()));
        }
        made
    }

    /// A deployment of Cluster API with the machines of one zone.
    fn deployment(&self, name: String, zone: Option<&str>, replicas: i32) -> MachineDeployment {
        let MachinePool { metadata, spec, .. } = &self.pool;
        let mut template = spec.template.clone();
        let pool = metadata.name.clone().unwrap_or_default();
        template.metadata.labels.insert(names::POOL_NAME.to_owned(), pool);
        template.spec.infrastructure_ref = ObjectRef {
            api_group: INFRASTRUCTURE_GROUP.to_owned(),
            kind: TEMPLATE_KIND.to_owned(),
            name: self.template_name(zone),
        };
        // The zone of a pool of another provider is that of its subnet or its class.
        if let Some(zone) = zone.filter(|_| self.foreign.is_none()) {
            template.spec.failure_domain = zone.to_owned();
        }
        let cluster_name = spec.cluster_name.clone();
        MachineDeployment {
            metadata: ObjectMeta { name: Some(name), ..metadata.clone() },
            spec: MachineDeploymentSpec {
                cluster_name,
                replicas: Some(replicas),
                template,
                ..MachineDeploymentSpec::default()
            },
            status: None,
        }
    }

    fn template_name(&self, zone: Option<&str>) -> String {
        let name = self.infrastructure.metadata.name.clone().unwrap_or_default();
        zone.map_or_else(|| name.clone(), |zone| format!("{name}-{zone}"))
    }

    /// The template of the machines of one zone. A class for another zone gives way to the class `<class>-<zone>`.
    fn template(&self, zone: Option<&str>, input: &ConversionInput<'_>) -> Value {
        let MCMMachinePool { metadata, spec, .. } = &self.infrastructure;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let class = &spec.machine_class_ref.name;
        let is_for = |class: &str, zone: &str| {
            zone_of(input.class(namespace, class).as_ref().map(content_of).as_ref()).as_deref() == Some(zone)
        };
        let variant = zone.filter(|zone| !is_for(class, zone)).map(|zone| (format!("{class}-{zone}"), zone));
        let variant = variant.filter(|(variant, zone)| is_for(variant, zone)).map(|(variant, _)| variant);
        let spec = MCMMachineSpec {
            machine_class_ref: ClassRef { name: variant.unwrap_or_else(|| class.clone()) },
            machine_class: spec.machine_class.clone(),
            zones: spec.zones.clone(),
            ..MCMMachineSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(self.template_name(zone)),
            namespace: metadata.namespace.clone(),
            ..ObjectMeta::default()
        };
        let template = TemplateResource { spec, ..TemplateResource::default() };
        let made = MCMMachineTemplate { metadata, spec: MCMMachineTemplateSpec { template }, status: None };
        serde_json::to_value(made).unwrap_or_else(|_| json!({}))
    }

    /// The pool, if it would become the given deployments and their classes.
    fn restore(
        mut self,
        members: &[&SourceDocument<'_>],
        input: &ConversionInput<'_>,
        options: &ConversionOptions,
    ) -> Option<ObjectConversion> {
        let mut report = ConversionReport::default();
        let given: Vec<machine::MachineDeployment> =
            members.iter().map(|member| member.decode(&mut report)).collect::<Option<_>>()?;
        let replicas = given.iter().try_fold(0_i32, |sum, one| sum.checked_add(one.spec.replicas))?;
        let made = self.deployments(replicas, input, options, &mut report);
        let is_same = |made: &machine::MachineDeployment, given: &machine::MachineDeployment| {
            let of = |one: &machine::MachineDeployment| {
                (
                    without_bookkeeping(one.metadata.labels.clone()),
                    without_bookkeeping(one.metadata.annotations.clone()),
                )
            };
            made.metadata.name == given.metadata.name && made.spec == given.spec && of(made) == of(given)
        };
        let is_complete = made.len() == given.len()
            && made.iter().all(|(made, _)| given.iter().any(|given| is_same(made, given)))
            && report.refusals.is_empty();
        if !is_complete {
            return None;
        }
        let namespace = self.pool.metadata.namespace.clone().unwrap_or_default();
        let data_secret_name = self.pool.spec.template.spec.bootstrap.data_secret_name.clone().unwrap_or_default();
        let cluster = self.pool.spec.cluster_name.clone();
        let mut outcome = ObjectConversion::default();
        for derived in made.iter().flat_map(|(_, others)| others).filter(|one| one["kind"] == "MachineClass") {
            let mut class: MachineClass = serde_json::from_value(derived.clone()).ok()?;
            let name = class.metadata.name.clone()?;
            let mut known = input.class(&namespace, &name)?;
            if self.foreign.is_some() {
                // Pools of other providers have no credentials, so users add them to the class.
                (class.credentials_secret_ref, known.credentials_secret_ref) = (None, None);
            }
            if (MachineClass { metadata: class.metadata.clone(), ..known }) != class {
                return None;
            }
            outcome.superseded.push(("MachineClass", name));
            outcome.superseded.push(("Secret", bootstrap::user_data_of(&data_secret_name)));
        }
        let place =
            TemplateLocation::new(TemplateOwner::Deployment, &self.pool.metadata, &cluster, None, options, input);
        let class = made.first().and_then(|(made, _)| input.class(&namespace, &made.spec.template.spec.class.name));
        let secret = bootstrap::to_capi(class.as_ref(), &data_secret_name, &place, &mut report);
        self.pool.spec.replicas = Some(replicas);
        let has_config = self.config_ref.is_some();
        if let Some(config_ref) = self.config_ref.take() {
            self.pool.spec.template.spec.bootstrap = Bootstrap { config_ref, data_secret_name: None };
        }
        outcome.objects.extend(serde_json::to_value(&self.pool));
        match self.foreign.take() {
            Some(foreign) => outcome.objects.push(foreign),
            None => outcome.objects.extend(serde_json::to_value(&self.infrastructure)),
        }
        outcome.objects.extend(secret.filter(|_| !has_config));
        Some(outcome).filter(|_| report.refusals.is_empty())
    }
}

/// Machines for each zone in the order of their names; the first ones get the remainder.
pub fn spread(replicas: i32, zones: &[String]) -> Vec<(Option<&str>, i32)> {
    let zones: BTreeSet<&str> = zones.iter().map(String::as_str).collect();
    let Ok(count @ 1..) = i32::try_from(zones.len()) else { return vec![(None, replicas)] };
    let (each, remainder) = (replicas / count, replicas % count);
    let shares = (0..).map(|index| each + i32::from(index < remainder));
    zones.into_iter().map(Some).zip(shares).collect()
}

/// Puts the Secret in the answer of the user in the place of the object of a bootstrap provider, which is returned.
fn answered(pool: &mut MachinePool, options: &ConversionOptions) -> Option<ObjectRef> {
    let bootstrap = &mut pool.spec.template.spec.bootstrap;
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let answer = options.answers.get(TemplateQuestion::BootstrapSecret, name)?;
    if bootstrap.config_ref == ObjectRef::default() {
        return None;
    }
    bootstrap.data_secret_name = Some(answer.to_owned());
    Some(std::mem::take(&mut bootstrap.config_ref))
}

/// The infrastructure object of a pool. That of another provider becomes one with a class, and is returned beside it.
fn infrastructure_of(
    pool: &MachinePool,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> Option<(MCMMachinePool, Option<Value>)> {
    let reference = &pool.spec.template.spec.infrastructure_ref;
    if reference.api_group == INFRASTRUCTURE_GROUP && cloud::provider_of_pool(&reference.kind).is_some() {
        return foreign_pool(pool, input, options, report).map(|(made, foreign)| (made, Some(foreign)));
    }
    if reference.api_group != INFRASTRUCTURE_GROUP || reference.kind != KIND {
        let reason = format!("{} {} is not {KIND}", reference.api_group, reference.kind);
        let advice = match is_managed(&reference.kind) {
            true => "leave the pool out: its cloud manages the machines",
            false => "create a MachineDeployment from the pool first",
        };
        report.refuse(REFERENCE, reason, advice);
        return None;
    }
    let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
    let Some(document) = input.find(INFRASTRUCTURE_GROUP, KIND, namespace, &reference.name) else {
        report.refuse(REFERENCE, format!("{KIND} {} is not among the objects", reference.name), "add it");
        return None;
    };
    let mut problems = ConversionReport::new(KIND, &reference.name);
    let found = document.decode::<MCMMachinePool>(&mut problems);
    if let Some(strategy) = found.as_ref().and_then(|found| found.spec.strategy.as_ref()) {
        strategy::check_native(strategy, &mut problems);
    }
    if found.as_ref().is_some_and(|found| !found.spec.machine_deployment_ref.name.is_empty()) {
        let reason = "the pool mirrors a MachineDeployment that is already an MCM object";
        problems.refuse("spec.machineDeploymentRef", reason, "leave out the pool");
    }
    if !pool.spec.template.spec.failure_domain.is_empty() && !pool.spec.failure_domains.is_empty() {
        report.refuse("spec.template.spec.failureDomain", "there are spec.failureDomains", "keep one of them");
    }
    // A strategy stays native, so nothing of it is lost.
    report.refusals.extend(problems.refusals);
    found.map(|found| (found, None))
}

/// The cloud manages the machines of a pool of this kind.
fn is_managed(kind: &str) -> bool {
    kind.contains("Managed") || kind.starts_with("ROSA")
}

/// The pool of another provider, and the same as one of mcm with its class inside.
fn foreign_pool(
    pool: &MachinePool,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> Option<(MCMMachinePool, Value)> {
    let reference = &pool.spec.template.spec.infrastructure_ref;
    let namespace = pool.metadata.namespace.as_deref().unwrap_or_default();
    let (class, foreign) = cloud::class_behind(reference, (namespace, REFERENCE), input, options, report)?;
    let spec = MCMMachinePoolSpec { machine_class: Some(content_of(&class)), ..MCMMachinePoolSpec::default() };
    let metadata = ObjectMeta {
        name: Some(reference.name.clone()),
        namespace: pool.metadata.namespace.clone(),
        ..ObjectMeta::default()
    };
    Some((MCMMachinePool { metadata, spec, status: None }, foreign))
}

fn kept(metadata: &ObjectMeta, report: &mut ConversionReport) -> ObjectMeta {
    ObjectMeta {
        labels: filled(without_bookkeeping(metadata.labels.clone())),
        annotations: filled(without_bookkeeping(metadata.annotations.clone())),
        ..identity(metadata, report)
    }
}
