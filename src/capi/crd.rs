//! The CRDs of the infrastructure provider and of the stand-in for core, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use kube::CustomResourceExt;

use mcm_api::crd::{roots, tidy};
use mcm_conversion::types::{
    Cluster, MCMCluster, MCMClusterTemplate, MCMMachine, MCMMachinePool, MCMMachinePoolTemplate, MCMMachineTemplate,
    MCMMigration, Machine, MachineDeployment, MachineHealthCheck, MachineSet, names,
};

/// The only version of all kinds, and the contract that it speaks.
const VERSION: &str = "v1beta2";

/// The CRDs of all kinds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut cluster = contract_crd::<MCMCluster>();
    for root in roots(&mut cluster) {
        root.required = None;
    }
    let mut machine = contract_crd::<MCMMachine>();
    for root in roots(&mut machine) {
        keep_identity(root);
    }
    let mut pool = contract_crd::<MCMMachinePool>();
    for root in roots(&mut pool) {
        keep_kind_of_pool(root);
    }
    let mut machines = contract_crd::<MCMMachineTemplate>();
    roots(&mut machines).for_each(|root| refuse_id(root, "providerID"));
    let mut pools = contract_crd::<MCMMachinePoolTemplate>();
    roots(&mut pools).for_each(|root| refuse_id(root, "providerIDList"));
    vec![cluster, contract_crd::<MCMClusterTemplate>(), machine, machines, pool, pools, contract_crd::<MCMMigration>()]
}

/// Each object that is made from a template would claim the same VM.
fn refuse_id(root: &mut JSONSchemaProps, field: &str) {
    let template =
        root.properties.as_mut().and_then(|all| all.get_mut("spec")?.properties.as_mut()?.get_mut("template"));
    let Some(spec) = template.and_then(|one| one.properties.as_mut()?.get_mut("spec")) else { return };
    spec.x_kubernetes_validations.get_or_insert_default().push(rule(
        &format!("!has(self.{field})"),
        &format!("a template has no {field}: write it into the object of one machine"),
    ));
}

/// The CRDs of the Cluster API core kinds that the stand-in serves. They accept no more than those of core, which later
/// replaces them; so there is one stored version, and no conversion.
pub fn stand_in() -> Vec<CustomResourceDefinition> {
    let mut cluster = contract_crd::<Cluster>();
    for root in roots(&mut cluster) {
        complete_cluster(root);
    }
    let mut deployment = contract_crd::<MachineDeployment>();
    for root in roots(&mut deployment) {
        root.x_kubernetes_validations.get_or_insert_default().push(rule(
            "size(self.metadata.name) <= 63",
            "the name may have at most 63 characters, because it is also a label value: choose a shorter one",
        ));
        keep_cluster(root);
    }
    let mut set = contract_crd::<MachineSet>();
    roots(&mut set).for_each(keep_cluster);
    let mut check = contract_crd::<MachineHealthCheck>();
    roots(&mut check).for_each(bind_check);
    vec![cluster, deployment, set, contract_crd::<Machine>(), check]
}

/// Fields of a Cluster that mcm does not read, and bounds of fields that its kinds leave open.
fn complete_cluster(root: &mut JSONSchemaProps) {
    let Some(spec) = root.properties.as_mut().and_then(|all| all.get_mut("spec")) else { return };
    spec.min_properties = Some(1);
    let properties = spec.properties.get_or_insert_default();
    if let Some(topology) = properties.get_mut("topology") {
        topology.required = Some(["classRef", "version"].map(str::to_owned).into());
    }
    if let Some(endpoint) = properties.get_mut("controlPlaneEndpoint") {
        endpoint.min_properties = Some(1);
        let endpoint = endpoint.properties.get_or_insert_default();
        endpoint.get_mut("host").into_iter().for_each(|host| host.min_length = Some(1));
        endpoint.get_mut("port").into_iter().for_each(|port| port.minimum = Some(1.0));
    }
    let blocks = serde_json::json!({
        "type": "object", "description": "Ranges of addresses.", "required": ["cidrBlocks"],
        "properties": { "cidrBlocks": {
            "type": "array", "description": "The ranges.", "minItems": 1, "maxItems": 100,
            "items": { "type": "string", "minLength": 1, "maxLength": 43 },
        }},
    });
    let network = serde_json::json!({
        "type": "object", "description": "Network of the cluster. mcm does not read it.", "minProperties": 1,
        "properties": {
            "apiServerPort": {
                "type": "integer", "format": "int32", "minimum": 1, "maximum": 65_535, "description": "Port of the API server.",
            },
            "services": blocks, "pods": blocks,
            "serviceDomain": { "type": "string", "minLength": 1, "maxLength": 253, "description": "Domain of Services." },
        },
    });
    properties.extend(serde_json::from_value(network).ok().map(|network| ("clusterNetwork".to_owned(), network)));
}

/// The webhooks of core say the same.
fn keep_cluster(root: &mut JSONSchemaProps) {
    let Some(spec) = root.properties.as_mut().and_then(|all| all.get_mut("spec")) else { return };
    let template = spec.properties.as_mut().and_then(|all| all.get_mut("template"));
    if let Some(metadata) = template.and_then(|one| one.properties.as_mut()).and_then(|all| all.get_mut("metadata")) {
        metadata.min_properties = Some(1);
    }
    spec.x_kubernetes_validations.get_or_insert_default().extend([
        rule(
            "self.clusterName == oldSelf.clusterName",
            "clusterName is immutable: create another object for another Cluster",
        ),
        rule(
            "self.clusterName == self.template.spec.clusterName",
            "write the same clusterName in spec.template.spec.clusterName",
        ),
    ]);
}

/// As the webhook of core requires.
fn bind_check(root: &mut JSONSchemaProps) {
    let Some(spec) = root.properties.as_mut().and_then(|all| all.get_mut("spec")) else { return };
    spec.x_kubernetes_validations.get_or_insert_default().extend([
        rule(
            "self.clusterName == oldSelf.clusterName",
            "clusterName is immutable: create another object for another Cluster",
        ),
        rule(
            "size(self.selector.?matchLabels.orValue({})) + size(self.selector.?matchExpressions.orValue([])) > 0",
            "the selector is empty: select the Machines by a label",
        ),
        rule(
            "!has(self.checks) || !has(self.checks.nodeStartupTimeoutSeconds) || \
             self.checks.nodeStartupTimeoutSeconds == 0 || self.checks.nodeStartupTimeoutSeconds >= 30",
            "nodeStartupTimeoutSeconds is shorter than 30: write a longer one, or 0 for no limit",
        ),
    ]);
}

fn contract_crd<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    crd.metadata.labels = Some([(names::CONTRACT.to_owned(), VERSION.to_owned())].into());
    roots(&mut crd).for_each(tidy);
    crd
}

/// ID of a VM and kind of its description stay. A policy keeps the description, except in an update in place. These rules are not in the template of an MCMMachine, where a ClusterClass tries changes
/// without making them.
fn keep_identity(root: &mut JSONSchemaProps) {
    let Some(spec) = root.properties.as_mut().and_then(|all| all.get_mut("spec")) else { return };
    spec.x_kubernetes_validations.get_or_insert_default().push(rule(
        "has(self.machineClassRef) == has(oldSelf.machineClassRef)",
        "machineClassRef cannot take the place of machineClass, nor the reverse: create another object for another VM",
    ));
    if let Some(id) = spec.properties.as_mut().and_then(|all| all.get_mut("providerID")) {
        let stays = rule("self == oldSelf", "the ID of a VM is immutable: create another object for another VM");
        id.x_kubernetes_validations = Some(vec![stays]);
    }
}

/// Names of sets and machines begin with that of the pool, and labels contain it. Whose VMs they are, and whether core
/// drains them, stays.
fn keep_kind_of_pool(root: &mut JSONSchemaProps) {
    root.x_kubernetes_validations
        .get_or_insert_default()
        .push(rule("size(self.metadata.name) <= 63", "the name may have at most 63 characters: choose a shorter one"));
    let Some(spec) = root.properties.as_mut().and_then(|all| all.get_mut("spec")) else { return };
    spec.x_kubernetes_validations.get_or_insert_default().extend([
        rule(
            "has(self.machineDeploymentRef) == has(oldSelf.machineDeploymentRef) && \
             (!has(self.machineDeploymentRef) || self.machineDeploymentRef.name == oldSelf.machineDeploymentRef.name)",
            "machineDeploymentRef is immutable: create another object for another deployment",
        ),
        rule(
            "has(self.machinePoolMachines) == has(oldSelf.machinePoolMachines) && \
             (!has(self.machinePoolMachines) || self.machinePoolMachines == oldSelf.machinePoolMachines)",
            "machinePoolMachines is immutable: create another pool",
        ),
    ]);
}

fn rule(rule: &str, message: &str) -> ValidationRule {
    ValidationRule { rule: rule.into(), message: Some(message.into()), ..ValidationRule::default() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn crd(kind: &str) -> CustomResourceDefinition {
        crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap()
    }

    fn root(kind: &str) -> JSONSchemaProps {
        let [version] = crd(kind).spec.versions.try_into().expect("one version");
        version.schema.unwrap().open_api_v3_schema.unwrap()
    }

    fn field(kind: &str, path: &[&str]) -> Option<JSONSchemaProps> {
        path.iter().try_fold(root(kind), |schema, name| schema.properties?.get(*name).cloned())
    }

    /// V1, V2, V3, V5, I20.
    #[rstest]
    fn each_kind_says_which_contract_it_speaks_and_has_the_names_that_core_computes(
        #[values(
            "MCMCluster",
            "MCMClusterTemplate",
            "MCMMachine",
            "MCMMachineTemplate",
            "MCMMachinePool",
            "MCMMachinePoolTemplate",
            "MCMMigration"
        )]
        kind: &str,
    ) {
        let crd = crd(kind);
        let label = crd.metadata.labels.as_ref().unwrap().get("cluster.x-k8s.io/v1beta2").unwrap();
        let served: Vec<_> = crd.spec.versions.iter().filter(|version| version.served).collect();
        let names: Vec<&str> = served.iter().map(|version| version.name.as_str()).collect();
        assert_eq!(label.split('_').collect::<Vec<_>>(), names);
        let plural = format!("{}s", kind.to_lowercase());
        assert_eq!(crd.metadata.name.unwrap(), format!("{plural}.infrastructure.cluster.x-k8s.io"));
        assert_eq!(crd.spec.names.plural, plural);
        assert!(crd.spec.names.list_kind.is_none_or(|list| list == format!("{kind}List")));
        assert_eq!(crd.spec.scope, "Namespaced");
        assert_eq!(crd.spec.names.categories.unwrap(), ["cluster-api"]);
        let has_status = root(kind).properties.unwrap().contains_key("status");
        let subresource = served[0].subresources.as_ref().is_some_and(|sub| sub.status.is_some());
        assert_eq!(subresource, has_status, "every status is a subresource");
    }

    /// C7, P6, I7 and trap T5: fields that core would read and that would hurt.
    #[test]
    fn fields_that_would_mislead_core_do_not_exist() {
        for kind in ["MCMCluster", "MCMMachine", "MCMMachinePool"] {
            assert!(field(kind, &["status", "conditions"]).is_some(), "{kind}");
            assert!(field(kind, &["status", "failureReason"]).is_none(), "{kind}");
            assert!(field(kind, &["status", "failureMessage"]).is_none(), "{kind}");
        }
        assert!(field("MCMMachine", &["status", "failureDomain"]).is_some());
        assert!(field("MCMMachine", &["spec", "failureDomain"]).is_none());
        assert!(field("MCMMachinePool", &["status", "ready"]).is_some(), "trap T2");
    }

    /// T4a, trap T21: CEL does not see a dry run, so no rule of a template may compare with what was stored.
    #[rstest]
    fn no_rule_of_a_template_compares_with_what_was_stored(
        #[values("MCMClusterTemplate", "MCMMachineTemplate", "MCMMachinePoolTemplate")] kind: &str,
    ) {
        assert_eq!(comparing(&serde_json::to_value(root(kind)).unwrap()), 0);
        assert!(comparing(&serde_json::to_value(root("MCMMachine")).unwrap()) > 0);
    }

    /// Rules that compare with the stored value, except rules that only tolerate it.
    fn comparing(schema: &serde_json::Value) -> usize {
        let own = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        let own =
            own.filter(|rule| rule["optionalOldSelf"] != true && rule["rule"].as_str().unwrap().contains("oldSelf"));
        let below = schema.as_object().map(|map| map.values().collect::<Vec<_>>());
        let below = below.or_else(|| schema.as_array().map(|all| all.iter().collect())).unwrap_or_default();
        own.count() + below.into_iter().map(comparing).sum::<usize>()
    }

    /// S5: as far as core has it: names, subresources, one stored version, no conversion, the contract.
    #[rstest]
    #[case("Cluster", &["cl"], None)]
    #[case("MachineDeployment", &["md"], Some(".status.selector"))]
    #[case("MachineSet", &["ms"], Some(".status.selector"))]
    #[case("Machine", &["ma"], None)]
    #[case("MachineHealthCheck", &["mhc", "mhcs"], None)]
    fn s5_the_stand_in_serves_its_kinds_as_core_does(
        #[case] kind: &str,
        #[case] short: &[&str],
        #[case] selector: Option<&str>,
    ) {
        let crd = stand_in().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        assert_eq!(crd.metadata.name.unwrap(), format!("{}s.cluster.x-k8s.io", kind.to_lowercase()));
        assert_eq!(crd.metadata.labels.unwrap(), [(names::CONTRACT.to_owned(), "v1beta2".to_owned())].into());
        assert_eq!(crd.spec.names.short_names.unwrap(), short);
        assert!(crd.spec.conversion.is_none());
        let [version] = &crd.spec.versions[..] else { panic!("one version") };
        assert!(version.name == "v1beta2" && version.served && version.storage);
        let subresources = version.subresources.clone().unwrap();
        assert!(subresources.status.is_some());
        let scale = subresources
            .scale
            .map(|scale| (scale.spec_replicas_path, scale.status_replicas_path, scale.label_selector_path.unwrap()));
        let of = |selector: &str| (".spec.replicas".to_owned(), ".status.replicas".to_owned(), selector.to_owned());
        assert_eq!(scale, selector.map(of));
    }

    /// T1a, C8.
    #[rstest]
    #[case("MCMClusterTemplate", "MCMCluster")]
    #[case("MCMMachineTemplate", "MCMMachine")]
    #[case("MCMMachinePoolTemplate", "MCMMachinePool")]
    fn a_template_has_metadata_and_the_spec_of_its_kind(#[case] template: &str, #[case] kind: &str) {
        let names = |schema: JSONSchemaProps| schema.properties.unwrap().into_keys().collect::<Vec<_>>();
        let of_template = field(template, &["spec", "template", "spec"]).unwrap();
        assert_eq!(names(of_template), names(field(kind, &["spec"]).unwrap()));
        let metadata = field(template, &["spec", "template", "metadata"]).unwrap();
        assert_eq!(names(metadata), ["annotations", "labels"]);
    }
}
