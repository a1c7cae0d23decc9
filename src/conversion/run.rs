//! The conversion of a number of objects.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    answers::UserAnswers,
    cloud::{self, provider::ProviderRole},
    health_check::{self, OwnerMachineLabels},
    hybrid,
    input::{ConversionInput, SourceDocument, flattened},
    keys, machine, machine_deployment,
    machine_pool::{self, RestoredPool},
    machine_set,
    options::{ConversionOptions, InfrastructureChoice},
    report::{ConversionLoss, ConversionRefusal, ConversionReport, ObjectConversion, merged},
    topology,
    unconverted::UnconvertedWorkers,
    v1beta1,
};
use crate::types::{CORE, CORE_GROUP, Cluster, INFRASTRUCTURE_GROUP, MachineHealthCheck, names};
use mcm_api::machine as native;

/// The result of a conversion.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversionResult {
    /// The converted objects, in the order of their sources; pools last.
    pub objects: Vec<Value>,
    /// Values that the other side cannot hold.
    pub losses: Vec<ConversionLoss>,
    /// Obstacles that keep objects from being converted.
    pub refusals: Vec<ConversionRefusal>,
}

/// The identity of an object.
type ConvertedObjectKey = (String, String, String, String);

#[derive(Default)]
struct ConversionRun {
    result: ConversionResult,
    /// Kind, namespace and name of sources that became part of other objects.
    superseded: BTreeSet<(String, String, String)>,
}

/// Converts objects of Cluster API to native ones. Native objects, Secrets and what is not referred to stay.
pub fn to_native(objects: &[Value], options: &ConversionOptions) -> ConversionResult {
    let given = flattened(objects);
    let read: Vec<Value> = given.iter().map(|object| v1beta1::read(object).into_owned()).collect();
    let input = ConversionInput::from_values(&read);
    let mut run = ConversionRun::new(&input, options);
    let references = MachineReferences::from_input(&input);
    for (document, given) in input.documents.iter().zip(given) {
        match (document.group, document.kind) {
            (CORE_GROUP, "Cluster" | "ClusterClass") if topology::has_workers(document) => {
                run.refuse_with(document, topology::refuse_all);
            }
            (CORE_GROUP, "ClusterClass") => run.keep(document, given),
            (CORE_GROUP, _) if document.version != version_of(CORE) => {
                let advice = "convert the file first: clusterctl convert";
                run.refuse(document, format!("{}/{} is not {CORE}", document.group, document.version), advice);
            }
            (CORE_GROUP, "MachineDeployment") => {
                run.convert(document, |source, report| machine_deployment::to_native(source, &input, options, report));
            }
            (CORE_GROUP, "MachinePool") => {
                run.convert(document, |source, report| machine_pool::to_native(source, &input, options, report));
            }
            (CORE_GROUP, "MachineSet") if document.is_owned_by("MachineDeployment") => {
                run.lose(document, "the controller of its deployment creates it");
            }
            (CORE_GROUP, "MachineSet") => {
                run.convert(document, |source, report| machine_set::to_native(source, &input, options, report));
            }
            (CORE_GROUP, "Machine") => {
                run.convert(document, |source, report| machine::to_native(source, &input, options, report));
            }
            (CORE_GROUP, "MachineHealthCheck") if hybrid::is_for_control_plane(document.value) => {
                run.keep(document, given);
            }
            (CORE_GROUP, "MachineHealthCheck") => run.convert(document, |source: MachineHealthCheck, report| {
                health_check::check(&source, &coverages(&input, document.namespace), report);
                ObjectConversion::default()
            }),
            (CORE_GROUP, "Cluster") => run.convert(document, |source: Cluster, report| {
                if source.spec.paused == Some(true) {
                    let reason = "MCM cannot pause the objects of a cluster";
                    report.refuse("spec.paused", reason, "convert when the cluster is no longer paused");
                }
                if hybrid::has_control_plane(document.value) {
                    report.lose("", KEPT, "");
                    return vec![given.clone()].into();
                }
                report.lose("", "has no MCM counterpart", "the target cluster is a flag of the controllers");
                ObjectConversion::default()
            }),
            (INFRASTRUCTURE_GROUP, kind @ ("MCMMachineTemplate" | "MCMMachine" | "MCMMachinePool")) => {
                if !references.has(kind, document) {
                    run.lose(document, "no object refers to it");
                }
            }
            (INFRASTRUCTURE_GROUP, kind) if hybrid::is_foreign(kind) => {
                let is_used = references.has(kind, document);
                let is_kept = hybrid::is_kept_by_others(document, &input);
                if is_kept {
                    run.keep(document, given);
                }
                if is_used || !is_kept {
                    run.convert(document, |_: Value, report| {
                        // A class that is used is written with its user.
                        let class = cloud::class_of(document, &input, &options.answers, report).filter(|_| !is_used);
                        class.into_iter().flat_map(serde_json::to_value).collect::<Vec<_>>().into()
                    });
                }
            }
            (INFRASTRUCTURE_GROUP, kind)
                if cloud::provider_of(kind, ProviderRole::Cluster).is_some()
                    && !hybrid::keeps_control_plane(&input, document.namespace) =>
            {
                run.lose(document, "has no MCM counterpart");
            }
            ("", "Secret") if references.has("Secret", document) => {}
            (native::GROUP, _) | ("", "Secret") => run.pass(document),
            _ if hybrid::stays(document) => run.keep(document, given),
            _ => run.refuse(document, "mcm does not convert this kind", "leave it out"),
        }
    }
    run.finish()
}

/// Converts native objects to those of Cluster API. Classes and Secrets stay, because mcm's infrastructure provider
/// also uses them. Workers of another provider become those of mcm, unless the provider of the cloud is wanted.
pub fn to_capi(objects: &[Value], options: &ConversionOptions) -> ConversionResult {
    let given = flattened(objects);
    let read: Vec<Value> = given.iter().map(|object| v1beta1::read(object).into_owned()).collect();
    let input = ConversionInput::from_values(&read);
    let mut run = ConversionRun::new(&input, options);
    let references = MachineReferences::from_input(&input);
    let has_others = |one: &SourceDocument<'_>| hybrid::refers_to_other(one) || topology::has_foreign_workers(one);
    let takes_workers = options.infrastructure == InfrastructureChoice::Mcm && input.documents.iter().any(has_others);
    if options.infrastructure == InfrastructureChoice::Mcm {
        run.report_unconverted(&input, takes_workers);
    }
    let (pools, losses) = machine_pool::restored(&input, options);
    run.result.losses.extend(losses.losses);
    let is_in_a_pool = |document: &SourceDocument<'_>| {
        let identity = (document.namespace.to_owned(), document.name.to_owned());
        pools.iter().any(|pool| pool.members.contains(&identity))
    };
    for (document, given) in input.documents.iter().zip(given) {
        match (document.group, document.kind) {
            (CORE_GROUP, "Cluster")
                if options.infrastructure == InfrastructureChoice::Mcm && topology::is_incomplete(document, &input) =>
            {
                run.refuse_with(document, topology::refuse_incomplete);
            }
            (CORE_GROUP, "Cluster") if takes_workers && topology::has_workers(document) => {
                run.convert(document, |_: Value, report| {
                    report.lose("", KEPT, "");
                    topology::without_zones(document, given, &input, report)
                });
            }
            (CORE_GROUP, "ClusterClass") if takes_workers && topology::has_foreign_workers(document) => {
                run.convert(document, |_: Value, report| topology::moved(document, given, &input, options, report));
            }
            (CORE_GROUP, _) if takes_workers && hybrid::refers_to_other(document) => {
                run.convert(document, |_: Value, report| hybrid::moved(document, given, &input, report));
            }
            (INFRASTRUCTURE_GROUP, kind)
                if takes_workers
                    && hybrid::is_foreign(kind)
                    && (references.has(kind, document) || topology::uses(document, &input)) =>
            {
                if hybrid::is_kept_by_others(document, &input) {
                    run.keep(document, given);
                }
                if references.has(kind, document) {
                    run.convert(document, |_: Value, report| hybrid::made(document, &input, options, report));
                }
                if topology::uses(document, &input) {
                    run.convert(document, |_: Value, report| topology::made(document, &input, options, report));
                }
            }
            (CORE_GROUP, _) if takes_workers => run.keep(document, given),
            _ if takes_workers && hybrid::stays(document) => run.keep(document, given),
            (native::GROUP, _) if document.version != native::VERSION => {
                let advice = "correct apiVersion";
                run.refuse(document, format!("{}/{} is not known", document.group, document.version), advice);
            }
            (native::GROUP, "MachineDeployment") if is_in_a_pool(document) => {}
            (native::GROUP, "MachineDeployment") => {
                run.convert(document, |source, report| machine_deployment::to_capi(source, &input, options, report))
            }
            (native::GROUP, "MachineSet") if document.is_owned_by("MachineDeployment") => {
                run.lose(document, "the controller of its deployment creates it");
            }
            (native::GROUP, "MachineSet") => {
                run.convert(document, |source, report| machine_set::to_capi(source, &input, options, report));
            }
            (native::GROUP, "Machine") => {
                run.convert(document, |source, report| machine::to_capi(source, &input, options, report));
            }
            (native::GROUP, "MachineClass")
                if options.infrastructure == InfrastructureChoice::OfCloud
                    && cloud::provider_of_driver(document.value["provider"].as_str().unwrap_or_default()).is_some() =>
            {
                let is_used = has_users(&input, document);
                let cluster = options.cluster.as_deref().unwrap_or_default();
                run.convert(document, |class: native::MachineClass, report| {
                    // A deployment writes the template of its class.
                    let template = cloud::template_of(&class, cluster, report).filter(|_| !is_used);
                    template.into_iter().collect::<Vec<_>>().into()
                });
            }
            (native::GROUP, "MachineClass") | ("", "Secret") | (CORE_GROUP | INFRASTRUCTURE_GROUP, _) => {
                run.result.objects.push(given.clone());
            }
            _ if hybrid::stays(document) => run.result.objects.push(given.clone()),
            _ => run.refuse(document, "mcm does not convert this kind", "leave it out"),
        }
    }
    for RestoredPool { members, outcome } in pools {
        let namespace = members.into_iter().next().map(|(namespace, _)| namespace).unwrap_or_default();
        run.take(outcome, &namespace);
    }
    run.finish()
}

/// The class for a machine template of another provider, without Secrets. `around` has the users of the template: the
/// provider's object for the cluster, and a deployment.
pub fn class_of_template(template: &Value, around: &[Value], answers: &UserAnswers) -> ConversionResult {
    let all: Vec<Value> = std::iter::once(template).chain(around).cloned().collect();
    let input = ConversionInput::from_values(&all);
    let mut run = ConversionRun::default();
    if let Some(document) = input.documents.first() {
        run.convert(document, |_: Value, report| {
            let class = cloud::class_of(document, &input, answers, report);
            class.into_iter().flat_map(serde_json::to_value).collect::<Vec<_>>().into()
        });
    }
    run.finish()
}

/// The machine template of the provider of its cloud for a class. Refused if no provider of the cloud is known.
pub fn template_of_class(class: &Value, cluster: &str) -> ConversionResult {
    let all = [class.clone()];
    let input = ConversionInput::from_values(&all);
    let mut run = ConversionRun::default();
    if let Some(document) = input.documents.first() {
        run.convert(document, |class: native::MachineClass, report| {
            let template = cloud::template_of(&class, cluster, report);
            if template.is_none() {
                let reason = format!("there is no provider with a template for {:?}", class.provider);
                report.refuse("provider", reason, "create the template of the other provider, with the same name");
            }
            template.into_iter().collect::<Vec<_>>().into()
        });
    }
    run.finish()
}

/// The note on objects that are not converted.
const KEPT: &str = "stays as it is, with its provider";

impl ConversionRun {
    fn new(input: &ConversionInput<'_>, options: &ConversionOptions) -> Self {
        let mut run = Self::default();
        let is_known = |name: &str| input.documents.iter().any(|document| document.name == name);
        run.result.refusals = options.answers.check(is_known);
        run
    }

    fn convert<T: DeserializeOwned + Serialize>(
        &mut self,
        document: &SourceDocument<'_>,
        convert: impl FnOnce(T, &mut ConversionReport) -> ObjectConversion,
    ) {
        let mut report = ConversionReport::new(document.kind, document.name);
        if document.name.is_empty() {
            report.refuse("metadata.name", "is empty", "name the object");
        }
        let outcome = document.decode(&mut report).map(|source| convert(source, &mut report)).unwrap_or_default();
        if report.refusals.is_empty() {
            self.take(outcome, document.namespace);
        }
        self.result.losses.extend(report.losses);
        self.result.refusals.extend(report.refusals);
    }

    fn take(&mut self, outcome: ObjectConversion, namespace: &str) {
        self.result.objects.extend(outcome.objects);
        let superseded = outcome.superseded.into_iter();
        self.superseded.extend(superseded.map(|(kind, name)| (kind.to_owned(), namespace.to_owned(), name)));
    }

    /// Reports workers whose infrastructure mcm does not convert. They are refused if there are no other workers.
    fn report_unconverted(&mut self, input: &ConversionInput<'_>, takes_workers: bool) {
        let refers_to_mcm = |one: &SourceDocument<'_>| {
            let kind = one.value.pointer("/spec/template/spec/infrastructureRef/kind").and_then(Value::as_str);
            let of_class = topology::worker_kinds(one).into_iter().any(|(_, kind)| kind.starts_with("MCM"));
            of_class || hybrid::has_workers(one) && kind.is_some_and(|kind| kind.starts_with("MCM"))
        };
        let has_others =
            takes_workers || input.documents.iter().any(|one| one.group == native::GROUP || refers_to_mcm(one));
        for document in &input.documents {
            let mut report = ConversionReport::new(document.kind, document.name);
            for workers in UnconvertedWorkers::of_document(document) {
                let UnconvertedWorkers { path, reason, advice, is_managed } = workers;
                match has_others || is_managed {
                    true => report.lose(path, reason, advice),
                    false => report.refuse(path, reason, advice),
                }
            }
            self.result.losses.extend(report.losses);
            self.result.refusals.extend(report.refusals);
        }
    }

    fn pass(&mut self, document: &SourceDocument<'_>) {
        self.result.objects.push(document.value.clone());
    }

    /// Passes an object of another provider as it was given, with a note.
    fn keep(&mut self, document: &SourceDocument<'_>, given: &Value) {
        self.result.objects.push(given.clone());
        self.lose(document, KEPT);
    }

    fn refuse_with(&mut self, document: &SourceDocument<'_>, refuse: fn(&SourceDocument<'_>, &mut ConversionReport)) {
        let mut report = ConversionReport::new(document.kind, document.name);
        refuse(document, &mut report);
        self.result.refusals.extend(report.refusals);
    }

    fn lose(&mut self, document: &SourceDocument<'_>, reason: &str) {
        let mut report = ConversionReport::new(document.kind, document.name);
        report.lose("", reason, "");
        self.result.losses.extend(report.losses);
    }

    fn refuse(&mut self, document: &SourceDocument<'_>, reason: impl Into<String>, advice: &str) {
        let mut report = ConversionReport::new(document.kind, document.name);
        report.refuse("kind", reason, advice);
        self.result.refusals.extend(report.refusals);
    }

    /// Equal objects are one; different ones under one name are refused.
    fn finish(self) -> ConversionResult {
        let Self { mut result, superseded } = self;
        let mut kept: Vec<Value> = Vec::new();
        let mut positions: BTreeMap<ConvertedObjectKey, usize> = BTreeMap::new();
        for object in std::mem::take(&mut result.objects) {
            let identity = identity_of(&object);
            let (_, kind, namespace, name) = &identity;
            if superseded.contains(&(kind.clone(), namespace.clone(), name.clone())) {
                continue;
            }
            let namesake = positions.get(&identity).and_then(|position| kept.get(*position));
            if namesake.is_some_and(|other| *other != object) {
                let mut report = ConversionReport::new(kind, name);
                let reason = "two different objects of the result have this name";
                report.refuse("metadata.name", reason, "convert their sources one by one");
                result.refusals.extend(report.refusals);
            } else if namesake.is_none() {
                positions.insert(identity, kept.len());
                kept.push(object);
            }
        }
        result.objects = kept;
        result.losses =
            merged(result.losses, |one| (&mut one.object, [&*one.path, &one.reason, &one.advice].join("\n")));
        result.refusals =
            merged(result.refusals, |one| (&mut one.object, [&*one.path, &one.reason, &one.advice].join("\n")));
        result
    }
}

fn identity_of(object: &Value) -> ConvertedObjectKey {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/apiVersion"), text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

/// References of the machines of Cluster API.
struct MachineReferences(BTreeSet<(String, String, String)>);

impl MachineReferences {
    fn from_input(input: &ConversionInput<'_>) -> Self {
        let mut found = BTreeSet::new();
        for document in input.documents.iter().filter(|document| document.group == CORE_GROUP) {
            for spec in ["/spec", "/spec/template/spec"].iter().filter_map(|path| document.value.pointer(path)) {
                let mut add = |kind: &Value, name: &Value| {
                    if let (Some(kind), Some(name)) = (kind.as_str(), name.as_str()) {
                        found.insert((kind.to_owned(), document.namespace.to_owned(), name.to_owned()));
                    }
                };
                add(&spec["infrastructureRef"]["kind"], &spec["infrastructureRef"]["name"]);
                add(&Value::from("Secret"), &spec["bootstrap"]["dataSecretName"]);
            }
        }
        Self(found)
    }

    fn has(&self, kind: &str, document: &SourceDocument<'_>) -> bool {
        self.0.contains(&(kind.to_owned(), document.namespace.to_owned(), document.name.to_owned()))
    }
}

/// A deployment or set uses a class.
fn has_users(input: &ConversionInput<'_>, class: &SourceDocument<'_>) -> bool {
    input.documents.iter().any(|user| {
        user.group == native::GROUP
            && user.namespace == class.namespace
            && user.value["spec"]["template"]["spec"]["class"]["name"] == class.name
    })
}

/// The machines of all deployments, sets and machines of Cluster API in a namespace.
fn coverages(input: &ConversionInput<'_>, namespace: &str) -> Vec<OwnerMachineLabels> {
    let of = |document: &SourceDocument<'_>| {
        let labels = |pointer: &str| {
            let labels = document.value.pointer(pointer).cloned().unwrap_or_default();
            serde_json::from_value(labels).unwrap_or_default()
        };
        let cluster = document.value.pointer("/spec/clusterName").and_then(Value::as_str).unwrap_or_default();
        let template = || labels("/spec/template/metadata/labels");
        match document.kind {
            "MachineDeployment" => Some(OwnerMachineLabels::of_deployment(&template(), document.name, cluster)),
            "MachinePool" => {
                let mut labels: keys::MetadataMap = template();
                labels.insert(names::POOL_NAME.to_owned(), document.name.to_owned());
                Some(OwnerMachineLabels::of_deployment(&labels, document.name, cluster))
            }
            "MachineSet" => Some(OwnerMachineLabels::of_set(&template(), document.name, cluster)),
            "Machine" => Some(OwnerMachineLabels::of_machine(&labels("/metadata/labels"), cluster)),
            _ => None,
        }
    };
    let documents = input.documents.iter();
    documents.filter(|one| one.group == CORE_GROUP && one.namespace == namespace).filter_map(of).collect()
}
