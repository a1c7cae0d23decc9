//! A class with access to its account, and the look-ups of its resources.

use std::sync::Arc;

use async_trait::async_trait;
use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, Vm, VmsByProviderId,
    cloud::{CloudFailure, CloudSession, CloudVm, LookupCoalescer, LruCache, MachineIdentity, VmOwnership},
};
use serde_json::{Value, json};

use crate::{
    calls::{Api, MarketplaceImage, Plan},
    errors::is_refused,
    graph,
    login::Login,
    names::{IDS, VM_NAMES, is_vm_name},
    operation::{Operation, Progress},
    resource::{Kind, Resource, Stage, Target},
    running::{Goal, Key},
    spec::{Scope, Spec, Urn},
};

/// Facts about an account that requests of several Machines need at the same time.
pub(crate) type Facts = LookupCoalescer<(Login, String), Result<Value, DriverError>>;

/// A class with access to its account.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Arc<Spec>,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub facts: Arc<Facts>,
    /// Logins whose reports on operations Azure refused.
    pub unreported: Arc<LruCache<Login, ()>>,
}

/// The end of a change, as Azure reports it.
pub(crate) type Ended = Result<(), DriverError>;

/// Where the VM of a Machine is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub location: &'a str,
    pub name: &'a str,
}

impl Session {
    /// `spec.providerID` of the Node of a VM: its resource ID, as Azure's cloud controller manager writes it, with names of users
    /// in lower case.
    pub fn node_provider_id(&self, vm: &str) -> String {
        let lower = |text: &str| text.to_ascii_lowercase();
        let (subscription, group, vm) = (lower(&self.api.subscription), lower(&self.scope.resource_group), lower(vm));
        format!(
            "azure:///subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{vm}"
        )
    }

    /// A VM, with the ID of its Node.
    pub fn vm(&self, vm: &Resource, location: &str) -> Vm {
        let vm = vm.vm(location);
        Vm { node_provider_id: Some(self.node_provider_id(&vm.node_name)), ..vm }
    }

    /// The place of the VM of a Machine: that in its provider ID, or that of a creation. `None` if no VM can have the name of the
    /// Machine.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the provider ID is of another cloud, or has a name that no VM can have.
    pub fn place_of<'a>(&'a self, machine: &'a Machine) -> Result<Option<Place<'a>>, DriverError> {
        let name = MachineIdentity::from_machine(machine).name;
        let Some([location, known]) = IDS.of_machine(machine)? else {
            let location = self.scope.location.as_str();
            return Ok(is_vm_name(name).then_some(Place { location, name }));
        };
        let id = &machine.spec.provider_id;
        let is_resource_id = id.starts_with("azure:///subscriptions/");
        let is_elsewhere = is_resource_id && !id.eq_ignore_ascii_case(&self.node_provider_id(known));
        if is_vm_name(known) && !is_elsewhere {
            let location = if is_resource_id { &self.scope.location } else { location };
            return Ok(Some(Place { location, name: known }));
        }
        let message = format!(
            "machine {name:?} has provider ID {id:?}, which is not of a VM in the resource group of its class: names of VMs have {VM_NAMES}"
        );
        Err(DriverError::new(Code::InvalidArgument, message))
    }

    /// A resource of the class, whoever made it.
    pub async fn at(&self, target: &Target) -> Result<Option<Resource>, DriverError> {
        self.api.resource(&self.scope.resource_group, target).await
    }

    /// The VM of a Machine: by its provider ID or, without an ID, the VM that was created for it.
    pub async fn find<'a>(&'a self, machine: &'a Machine) -> Result<Option<(Place<'a>, Resource)>, DriverError> {
        let Some(place) = self.place_of(machine)? else { return Ok(None) };
        let vm = if machine.spec.provider_id.is_empty() {
            self.created_for(machine).await?.pop()
        } else {
            self.known(machine).await?
        };
        Ok(vm.map(|vm| (place, vm)))
    }

    /// The ID of the subnet of the class.
    ///
    /// # Errors
    /// [`Code::Internal`]: the subnet does not exist.
    pub async fn subnet_id(&self) -> Result<String, DriverError> {
        let (api, spec) = (self.api.clone(), Arc::clone(&self.spec));
        let key = format!("subnet/{}/{}/{}", spec.network_group(), spec.subnet.vnet, spec.subnet.name);
        let look = async move {
            let absent = || {
                let (name, vnet, group) = (&spec.subnet.name, &spec.subnet.vnet, spec.network_group());
                let message = format!("there is no subnet {name} in virtual network {vnet} of resource group {group}");
                DriverError::new(Code::Internal, message)
            };
            api.subnet(&spec).await?.ok_or_else(absent)
        };
        let subnet = self.fact(key, look).await?;
        subnet["id"].as_str().map(str::to_owned).ok_or_else(|| {
            DriverError::new(Code::Unknown, "a look at the subnet failed: the answer has no id".to_owned())
        })
    }

    /// The ID of an image of the marketplace, and its plan, whose terms are accepted if `accepts_terms` is true.
    ///
    /// # Errors
    /// [`Code::NotFound`]: there is no such image, or no terms of its plan.
    pub async fn marketplace(&self, urn: Urn<'_>, accepts_terms: bool) -> Result<(String, Option<Value>), DriverError> {
        let Urn { publisher, offer, sku, version } = urn;
        let key = format!("image/{accepts_terms}/{}/{publisher}:{offer}:{sku}:{version}", self.scope.location);
        let (api, location) = (self.api.clone(), self.scope.location.clone());
        let texts = [publisher, offer, sku, version].map(str::to_owned);
        let look = async move {
            let [publisher, offer, sku, version] = &texts;
            let image = api.image(&location, Urn { publisher, offer, sku, version }).await?;
            let Some(image) = image else {
                let message = format!("there is no image {} in {location}", texts.join(":"));
                return Err(DriverError::new(Code::NotFound, message));
            };
            if let Some(plan) = image.plan().filter(|_| accepts_terms) {
                accept_terms(&api, plan).await?;
            }
            Ok(described(&image))
        };
        let fact = self.fact(key, look).await?;
        let plan = fact["plan"].as_object().map(|plan| Value::Object(plan.clone()));
        Ok((fact["id"].as_str().unwrap_or_default().to_owned(), plan))
    }

    /// The result of a look that others may wait for.
    async fn fact(
        &self,
        key: String,
        look: impl Future<Output = Result<Value, DriverError>> + Send + 'static,
    ) -> Result<Value, DriverError> {
        self.facts.look_up((self.login.clone(), key), String::new(), move |_| look).await
    }

    /// Reads the state of a change. `None` while it is not done.
    pub async fn look(
        self,
        target: Target,
        goal: Goal,
        operation: Option<Operation>,
        what: String,
    ) -> Result<Option<Ended>, DriverError> {
        if let Some(operation) = &operation {
            match self.api.progress(operation).await {
                Ok(Some(Progress::Running)) => return Ok(None),
                Ok(Some(Progress::Succeeded)) => return Ok(Some(Ok(()))),
                Ok(Some(Progress::Failed(failure))) => return Ok(Some(Err(self.api.error(&failure, &what)))),
                // Azure keeps reports for some time only.
                Ok(None) => {}
                // An account may have the right to change a resource and none to read reports.
                Err(failure) if is_refused(&failure) => self.warn_of_reports(&failure),
                Err(failure) => return Err(self.api.error(&failure, &what)),
            }
        }
        let ended = |code, text: &str| Some(Err(DriverError::new(code, format!("{what} failed: {text}"))));
        let found = self.at(&target).await?;
        let stage = found.as_ref().map(Resource::stage);
        Ok(match (goal, stage) {
            (Goal::Create, Some(Stage::Ready)) | (Goal::Delete, None) => Some(Ok(())),
            (Goal::Create, Some(Stage::Working)) | (Goal::Delete, Some(Stage::Deleting)) => None,
            (Goal::Create, None | Some(Stage::Deleting)) => ended(Code::Aborted, "it was deleted meanwhile"),
            (Goal::Delete, Some(_)) => ended(Code::Aborted, "it is still there"),
            (Goal::Create, Some(Stage::Failed)) => match found.and_then(|found| found.failure()) {
                Some(failure) => Some(Err(self.api.error(&failure, &what))),
                None => ended(Code::Internal, "Azure gives no reason"),
            },
        })
    }

    /// Warns once for each login.
    fn warn_of_reports(&self, failure: &CloudFailure) {
        if self.unreported.get(&self.login).is_none() {
            self.unreported.put(self.login.clone(), ());
            let error = self.api.error(failure, "a look at the report on an operation");
            let application = &self.login.client;
            tracing::warn!(application, %error, "Azure refuses reports: mcm looks at the resources, and misses some reasons");
        }
    }

    /// The key under which a change is remembered.
    pub fn key(&self, target: &Target, goal: Goal) -> Key {
        (self.login.clone(), self.scope.resource_group.clone(), target.clone(), goal)
    }

    /// The beginning of the IDs of resources in the resource group of the class.
    pub fn group_id(&self) -> String {
        format!("/subscriptions/{}/resourceGroups/{}/providers", self.api.subscription, self.scope.resource_group)
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Resource;
    type Place = ();

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) {}

    async fn with_id(&self, machine: &Machine) -> Result<Vec<Resource>, DriverError> {
        if machine.spec.provider_id.is_empty() {
            return Ok(Vec::new());
        }
        // Only markers tell an orphan from a VM of others with the same name.
        let is_orphan = MachineIdentity::from_machine(machine).uid.is_empty();
        let is_ours = |vm: &Resource| !is_orphan || vm.belonging(&self.scope) == VmOwnership::Ours;
        Ok(self.named(machine).await?.into_iter().filter(is_ours).collect())
    }

    /// The VM at the place of a Machine, which its provider ID names if it has one.
    async fn named(&self, machine: &Machine) -> Result<Vec<Resource>, DriverError> {
        let Some(place) = self.place_of(machine)? else { return Ok(Vec::new()) };
        Ok(self.at(&Target::new(Kind::Vm, place.name)).await?.into_iter().collect())
    }

    /// The Resource Graph also has the parts that are left of VMs.
    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        let rows = self.api.query(&graph::query(&self.scope)).await?;
        Ok(graph::machines(&rows, &self.scope, &self.spec.data_disks))
    }

    fn shown(&self, vm: &Resource) -> Vm {
        self.vm(vm, &self.scope.location)
    }
}

/// Facts that requests which wait at the same time share.
pub(crate) fn facts() -> Arc<Facts> {
    Arc::new(LookupCoalescer::of_facts())
}

async fn accept_terms(api: &Api, plan: &Plan) -> Result<(), DriverError> {
    let Some(terms) = api.agreement(plan).await? else {
        let message = format!("there are no terms of plan {} of {} ({})", plan.name, plan.publisher, plan.product);
        return Err(DriverError::new(Code::NotFound, message));
    };
    if terms["properties"]["accepted"] == true { Ok(()) } else { api.accept(plan, terms).await }
}

fn described(image: &MarketplaceImage) -> Value {
    let plan =
        image.plan().map(|plan| json!({"name": plan.name, "product": plan.product, "publisher": plan.publisher}));
    json!({"id": image.id, "plan": plan})
}
