//! The resources that a class needs of its cluster, and whether they are there. No call changes anything: a VM is sent as a dry
//! run, which KubeVirt checks and the API server does not keep.

use futures::{future::join_all, join};
use mcm_driver::{DriverError, cloud::MachineIdentity, code::Code, inspection::ResourceFinding};
use serde_json::{Value, json};

use super::{
    names::NO_PLACE,
    order::{Order, REGION, ZONE},
    session::Session,
    spec::Source,
};

/// Name of the VM of the dry run.
const NAME: &str = "mcm-class-check";
/// Verbs that the driver needs, by the resource.
const PERMISSIONS: [(&str, &str, &[&str]); 2] = [
    ("kubevirt.io", "virtualmachines", &["get", "list", "create", "patch", "delete"]),
    ("", "secrets", &["get", "create", "patch", "delete"]),
];

/// An object, or `None` if it is certainly absent.
type Found = Result<Option<Value>, DriverError>;

impl Session {
    /// Checks everything that the class needs.
    pub async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let login = self.login_works().await;
        if let Err(error) = &login
            && error.code == Code::Unauthenticated
        {
            // Everything else would fail for the same reason.
            return vec![ResourceFinding::of_failure("Secret", error)];
        }
        let login = match login {
            Ok(text) => ResourceFinding::present("Secret", text),
            Err(error) => ResourceFinding::of_failure("Secret", &error),
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let (permissions, vm, places, objects) =
            join!(self.permissions(), self.dry_run(), self.places(), self.objects());
        let findings = [login, permissions].into_iter().chain(user_data).chain([vm]);
        findings.chain(places).chain(objects).collect()
    }

    /// Lists one VM.
    async fn login_works(&self) -> Result<String, DriverError> {
        let (url, namespace) = (&self.login.url, &self.login.namespace);
        self.api.object(&self.api.path_of_vms(), &[("limit", "1")]).await?;
        Ok(format!("namespace {namespace} of {url} has VirtualMachines"))
    }

    async fn permissions(&self) -> ResourceFinding {
        let all = PERMISSIONS
            .iter()
            .flat_map(|(group, resource, verbs)| verbs.iter().map(move |verb| (*group, *resource, *verb)));
        let answers = join_all(all.map(async |(group, resource, verb)| {
            let allowed = self.is_allowed(group, resource, verb).await?;
            Ok::<_, DriverError>((!allowed).then(|| format!("{verb} {resource}")))
        }));
        match answers.await.into_iter().collect::<Result<Vec<_>, _>>() {
            Err(error) => ResourceFinding::of_failure("Secret", &error),
            Ok(answers) => {
                let denied: Vec<String> = answers.into_iter().flatten().collect();
                if denied.is_empty() {
                    ResourceFinding::present("Secret", "the credentials have all permissions that mcm needs")
                } else {
                    ResourceFinding::missing("Secret", format!("the credentials may not {}", denied.join(", ")))
                }
            }
        }
    }

    async fn is_allowed(&self, group: &str, resource: &str, verb: &str) -> Result<bool, DriverError> {
        const PATH: [&str; 4] = ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"];
        let attributes = json!({"namespace": self.login.namespace, "group": group, "resource": resource, "verb": verb});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let answer = self.api.judged(&PATH, &[], review).await?;
        Ok(answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
    }

    /// Lets KubeVirt check a VM of the class.
    async fn dry_run(&self) -> ResourceFinding {
        let order = Order {
            spec: &self.spec,
            scope: &self.scope,
            wanted: MachineIdentity { name: NAME, uid: NAME },
            owner: "",
        };
        let query = [("dryRun", "All"), ("fieldValidation", "Strict")];
        match self.api.judged(&self.api.path_of_vms(), &query, order.virtual_machine()).await {
            Ok(_) => ResourceFinding::present("providerSpec", "KubeVirt accepts a VM of the class"),
            Err(error) => ResourceFinding::of_failure("providerSpec", &error),
        }
    }

    /// Nodes in the region and the zone. Users of one namespace may often not list Nodes.
    async fn places(&self) -> Vec<ResourceFinding> {
        let places = [("region", REGION, &self.spec.region), ("zone", ZONE, &self.spec.zone)];
        join_all(places.into_iter().map(async |(field, label, name)| {
            let path = format!("providerSpec.{field}");
            let selector = if name == NO_PLACE { format!("!{label}") } else { format!("{label}={name}") };
            let nodes = self.api.object(&["api", "v1", "nodes"], &[("labelSelector", &selector), ("limit", "1")]).await;
            let has_any =
                |nodes: &Value| nodes.get("items").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
            match nodes {
                Err(error) => ResourceFinding::of_failure(path, &error),
                Ok(nodes) if nodes.as_ref().is_some_and(has_any) => {
                    ResourceFinding::present(path, format!("there are Nodes with {selector}"))
                }
                Ok(_) => ResourceFinding::missing(path, format!("there is no Node with {selector}")),
            }
        }))
        .await
    }

    /// Objects that the class refers to.
    async fn objects(&self) -> Vec<ResourceFinding> {
        join_all(self.references().into_iter().map(async |reference| reference.judged(self.look_for(&reference).await)))
            .await
    }

    async fn look_for(&self, reference: &Reference) -> Found {
        let namespace = reference.namespace.as_deref().unwrap_or(&self.login.namespace);
        let (kind, name) = (reference.kind, reference.name.as_str());
        let path: &[&str] = match kind {
            "StorageClass" => &["apis", "storage.k8s.io", "v1", "storageclasses", name],
            "NetworkAttachmentDefinition" => {
                &["apis", "k8s.cni.cncf.io", "v1", "namespaces", namespace, "network-attachment-definitions", name]
            }
            "PersistentVolumeClaim" => &["api", "v1", "namespaces", namespace, "persistentvolumeclaims", name],
            "ConfigMap" => &["api", "v1", "namespaces", namespace, "configmaps", name],
            _ => &["api", "v1", "namespaces", namespace, "secrets", name],
        };
        self.api.object(path, &[]).await
    }

    fn references(&self) -> Vec<Reference> {
        let class_of = |path: String, volume: &Value| {
            let name =
                volume.pointer("/pvc/storageClassName").and_then(Value::as_str).filter(|name| !name.is_empty())?;
            Some(Reference::new(format!("{path}.pvc.storageClassName"), "StorageClass", name))
        };
        let root = class_of("providerSpec.rootVolume".to_owned(), &self.spec.root_volume);
        let volumes = self.spec.additional_volumes.iter().enumerate().filter_map(|(index, volume)| {
            let path = format!("providerSpec.additionalVolumes[{index}]");
            match &volume.source {
                Source::DataVolume(source) => class_of(format!("{path}.dataVolume"), source),
                Source::Existing(kind, source) => {
                    let (kind, key) = match *kind {
                        "persistentVolumeClaim" => ("PersistentVolumeClaim", "claimName"),
                        "configMap" => ("ConfigMap", "name"),
                        _ => ("Secret", "secretName"),
                    };
                    let name = source.get(key)?.as_str()?;
                    Some(Reference::new(format!("{path}.volumeSource"), kind, name))
                }
                Source::Unusable(_) => None,
            }
        });
        let networks = self.spec.networks.iter().enumerate().map(|(index, network)| {
            let path = format!("providerSpec.networks[{index}].name");
            let (namespace, name) = match network.name.split_once('/') {
                Some((namespace, name)) => (Some(namespace.to_owned()), name),
                None => (None, network.name.as_str()),
            };
            Reference { namespace, ..Reference::new(path, "NetworkAttachmentDefinition", name) }
        });
        root.into_iter().chain(volumes).chain(networks).collect()
    }
}

/// An object that a field names.
struct Reference {
    path: String,
    kind: &'static str,
    /// That of the VM without one.
    namespace: Option<String>,
    name: String,
}

impl Reference {
    fn new(path: String, kind: &'static str, name: &str) -> Self {
        Self { path, kind, namespace: None, name: name.to_owned() }
    }

    fn judged(&self, found: Found) -> ResourceFinding {
        let Self { path, kind, name, .. } = self;
        match found {
            Err(error) => ResourceFinding::of_failure(path, &error),
            Ok(None) => ResourceFinding::missing(path, format!("there is no {kind} {name}")),
            Ok(Some(_)) => ResourceFinding::present(path, format!("{kind} {name} exists")),
        }
    }
}
