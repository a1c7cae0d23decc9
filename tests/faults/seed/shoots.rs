//! The shoots of a seed, and the state of their machines in a migration.

use std::{collections::BTreeMap, fs};

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::FLEET;
use crate::support::{
    control_plane::ControlPlane,
    fleet::{AT_ONCE, FleetPlanes, replica::SERVER},
    gardenlet::{ROLE, ShootLayout},
    identity::{self, Identity, Rights},
    objects,
};

const MACHINES: &str = "machine.sapcloud.io/v1alpha1";
/// The kinds of a state, in the order of a restore.
const RESTORED: [(&str, &str); 5] = [
    ("v1", "Secret"),
    (MACHINES, "MachineClass"),
    (MACHINES, "MachineSet"),
    (MACHINES, "Machine"),
    (MACHINES, "MachineDeployment"),
];
/// The order of a shallow deletion. A controller that still ran would replace the Machines, and delete the VMs of the classes.
const DELETED: [&str; 5] = ["Machine", "MachineSet", "MachineDeployment", "MachineClass", "Secret"];
/// The Secret that the classes name.
const CLASS_SECRET: &str = "pool";

/// A shoot of the seed.
pub struct SeedShoot {
    pub layout: ShootLayout,
    /// The accounts for its namespace and for its cluster.
    pub identity: Identity,
}

/// Lays a shoot out in each namespace. Its cluster is below a URL, at the name of the namespace.
pub async fn lay_out(planes: &FleetPlanes, control: &ControlPlane, url: &str) -> BTreeMap<String, SeedShoot> {
    let shoots = planes.namespaces.iter().map(|namespace| lay_out_shoot(planes, control, namespace, url));
    stream::iter(shoots).buffer_unordered(AT_ONCE).collect().await
}

async fn lay_out_shoot(
    planes: &FleetPlanes,
    control: &ControlPlane,
    namespace: &str,
    url: &str,
) -> (String, SeedShoot) {
    let folder = planes.world.folder().join(namespace);
    fs::create_dir(&folder).unwrap();
    let identity = identity::create((control, control), Rights::DropIn, namespace, &folder).await;
    identity::change(&identity.target, SERVER, format!("{url}/{namespace}").into());
    let layout = ShootLayout::new(&planes.world.client, namespace, &identity.target);
    let ((role, shoot), (label, fleet)) = (ROLE, FLEET);
    layout.label(json!({role: shoot, label: fleet})).await;
    layout.write_access().await;
    layout.scale_manager(1).await;
    (namespace.to_owned(), SeedShoot { layout, identity })
}

/// The objects for the machines of a shoot, without what the API server and the controllers add.
pub struct ShootState {
    /// In the order of a restore.
    objects: Vec<Value>,
}

impl ShootState {
    /// Reads the state of a shoot.
    pub async fn read(client: &Client, namespace: &str) -> Self {
        let mut stored = Vec::new();
        for (version, kind) in RESTORED {
            let place = json!({"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace}});
            // The other Secrets are those of gardenlet.
            let params = match kind {
                "Secret" => ListParams::default().fields(&format!("metadata.name={CLASS_SECRET}")),
                _ => ListParams::default(),
            };
            let listed = objects::api_of(client, &place).list(&params).await.unwrap();
            stored.extend(listed.items.iter().map(|object| stored_object((version, kind), object)));
        }
        Self { objects: stored }
    }

    /// Removes the finalizers of the objects and deletes them, as gardenlet does. The VMs live on.
    pub async fn delete_shallowly(&self, client: &Client) {
        for kind in DELETED {
            for object in self.objects.iter().filter(|object| object["kind"] == kind) {
                let (api, name) = (objects::api_of(client, object), object["metadata"]["name"].as_str().unwrap());
                let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                api.patch(name, &PatchParams::default(), &patch).await.unwrap();
                api.delete(name, &DeleteParams::default()).await.unwrap();
            }
        }
    }

    /// Creates the objects again. There must be none of them.
    pub async fn restore(&self, client: &Client) {
        for object in &self.objects {
            let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
            objects::api_of(client, object).create(&PostParams::default(), &new).await.unwrap();
        }
    }
}

/// An object as a state has it. A deployment is generated anew, without the annotations of its controller.
fn stored_object((version, kind): (&str, &str), object: &DynamicObject) -> Value {
    let meta = &object.metadata;
    let annotations = meta.annotations.clone().filter(|_| kind != "MachineDeployment");
    let (name, namespace, labels) = (meta.name.clone(), meta.namespace.clone(), meta.labels.clone());
    let kept = ObjectMeta { name, namespace, labels, annotations, ..ObjectMeta::default() };
    let mut stored = serde_json::to_value(object).unwrap();
    stored["apiVersion"] = version.into();
    stored["kind"] = kind.into();
    stored["metadata"] = serde_json::to_value(kept).unwrap();
    stored.as_object_mut().unwrap().remove("status");
    stored
}
