//! The requests that create the resources of a machine.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_driver::DriverError;
use serde_json::{Map, Value, json};

use crate::{
    keys::throw_away_key,
    names::{nic_of, os_disk_of},
    spec::{DataDisk, Image, Spec},
};

const CASCADE: &str = "Delete";

/// A machine that is ordered.
pub(crate) struct Order<'a> {
    pub spec: &'a Spec,
    pub name: &'a str,
    pub tags: BTreeMap<String, String>,
    pub user_data: Cow<'a, [u8]>,
    /// The beginning of the IDs of resources in the resource group of the class.
    pub group_id: String,
}

impl Order<'_> {
    /// The network interface, in a subnet.
    pub fn nic(&self, subnet_id: &str) -> Value {
        let of_address = json!({"privateIPAllocationMethod": "Dynamic", "subnet": {"id": subnet_id}});
        let address = json!({"name": nic_of(self.name), "properties": of_address});
        let mut properties = json!({"enableIPForwarding": true, "nicType": "Standard", "ipConfigurations": [address]});
        put(&mut properties, "enableAcceleratedNetworking", self.spec.accelerated_networking);
        json!({"location": self.spec.location, "tags": self.tags, "properties": properties})
    }

    /// A disk from an image. `image_id` is the ID of an image of the marketplace.
    pub fn disk(&self, disk: &DataDisk, image: &Image, image_id: Option<&str>) -> Value {
        let (field, reference) = match image {
            Image { shared: Some(id), .. } => ("galleryImageReference", json!({"sharedGalleryImageId": id})),
            Image { community: Some(id), .. } => ("galleryImageReference", json!({"communityGalleryImageId": id})),
            image => ("imageReference", json!({"id": image_id.or(image.id.as_deref())})),
        };
        let creation = json!({"createOption": "FromImage", field: reference});
        let mut body = json!({
            "location": self.spec.location, "tags": self.tags, "sku": {"name": disk.storage_type},
            "properties": {"diskSizeGB": disk.size, "osType": "Linux", "creationData": creation},
        });
        put(&mut body, "zones", self.zones());
        body
    }

    /// The VM. `plan` is that of an image of the marketplace.
    ///
    /// # Errors
    /// As for [`throw_away_key`].
    pub fn vm(&self, plan: Option<&Value>) -> Result<Value, DriverError> {
        let spec = self.spec;
        let nic = json!({
            "id": format!("{}/Microsoft.Network/networkInterfaces/{}", self.group_id, nic_of(self.name)),
            "properties": {"primary": true, "deleteOption": CASCADE},
        });
        let mut properties = json!({
            "hardwareProfile": {"vmSize": spec.vm_size},
            "networkProfile": {"networkInterfaces": [nic]},
            "osProfile": self.system()?,
            "storageProfile": self.storage(),
        });
        put(&mut properties, "availabilitySet", reference(spec.availability_set.as_ref()));
        put(&mut properties, "virtualMachineScaleSet", reference(spec.scale_set.as_ref()));
        put(&mut properties, "diagnosticsProfile", self.diagnostics());
        put(&mut properties, "securityProfile", self.security());
        let group = reference(spec.capacity_reservation.as_ref());
        put(&mut properties, "capacityReservation", group.map(|group| json!({"capacityReservationGroup": group})));
        let mut body = json!({"location": spec.location, "tags": self.tags, "properties": properties});
        put(&mut body, "zones", self.zones());
        put(&mut body, "plan", plan);
        let identity = |id: &String| json!({"type": "UserAssigned", "userAssignedIdentities": {id.as_str(): {}}});
        put(&mut body, "identity", spec.identity.as_ref().map(identity));
        Ok(body)
    }

    fn system(&self) -> Result<Value, DriverError> {
        let spec = self.spec;
        let key = spec.key.clone().map_or_else(throw_away_key, Ok)?;
        let mut public_key = json!({"keyData": key});
        put(&mut public_key, "path", spec.key_path.as_ref());
        Ok(json!({
            "adminUsername": spec.admin, "computerName": self.name, "customData": STANDARD.encode(&self.user_data),
            "linuxConfiguration": {
                "disablePasswordAuthentication": spec.is_without_password, "ssh": {"publicKeys": [public_key]},
            },
        }))
    }

    fn storage(&self) -> Value {
        let (spec, disk) = (self.spec, &self.spec.os_disk);
        let mut managed = Map::new().into();
        put(&mut managed, "storageAccountType", disk.storage_type.as_ref());
        let encryption = disk.encryption.as_ref().map(|kind| json!({"securityEncryptionType": kind}));
        put(&mut managed, "securityProfile", encryption);
        let mut os_disk = json!({
            "name": os_disk_of(self.name), "createOption": disk.create_option, "diskSizeGB": disk.size,
            "deleteOption": CASCADE, "managedDisk": managed,
        });
        put(&mut os_disk, "caching", disk.caching.as_ref());
        let data_disks: Vec<Value> = spec.data_disks.iter().map(|disk| self.data_disk(disk)).collect();
        let mut storage =
            json!({"imageReference": image_reference(&spec.image), "osDisk": os_disk, "dataDisks": data_disks});
        put(&mut storage, "diskControllerType", spec.disk_controller.as_ref());
        storage
    }

    /// An empty disk, or one that was created from an image before.
    fn data_disk(&self, disk: &DataDisk) -> Value {
        let name = disk.name_at(self.name);
        let mut managed = json!({"storageAccountType": disk.storage_type});
        let id = format!("{}/Microsoft.Compute/disks/{name}", self.group_id);
        put(&mut managed, "id", disk.image.as_ref().map(|_| id));
        json!({
            "name": name, "lun": disk.lun, "diskSizeGB": disk.size, "caching": disk.caching.as_deref().unwrap_or("None"),
            "createOption": if disk.image.is_some() { "Attach" } else { "Empty" }, "deleteOption": CASCADE,
            "managedDisk": managed,
        })
    }

    fn diagnostics(&self) -> Option<Value> {
        let diagnostics = self.spec.diagnostics.as_ref()?;
        let mut boot = json!({"enabled": diagnostics.is_enabled});
        put(&mut boot, "storageUri", diagnostics.storage_uri.as_ref());
        Some(json!({"bootDiagnostics": boot}))
    }

    fn security(&self) -> Option<Value> {
        let security = self.spec.security.as_ref()?;
        let mut profile = Map::new().into();
        put(&mut profile, "securityType", security.kind.as_ref());
        if security.has_firmware {
            let mut firmware = Map::new().into();
            put(&mut firmware, "vTpmEnabled", security.tpm);
            put(&mut firmware, "secureBootEnabled", security.secure_boot);
            put(&mut profile, "uefiSettings", Some(firmware));
        }
        Some(profile)
    }

    fn zones(&self) -> Option<Value> {
        self.spec.zone.map(|zone| json!([zone.to_string()]))
    }
}

fn image_reference(image: &Image) -> Value {
    match (image, image.urn()) {
        (Image { id: Some(id), .. }, _) => json!({"id": id}),
        (Image { community: Some(id), .. }, _) => json!({"communityGalleryImageId": id}),
        (Image { shared: Some(id), .. }, _) => json!({"sharedGalleryImageId": id}),
        (_, Some(urn)) => {
            json!({"publisher": urn.publisher, "offer": urn.offer, "sku": urn.sku, "version": urn.version})
        }
        _ => Value::Null,
    }
}

fn reference(id: Option<&String>) -> Option<Value> {
    id.map(|id| json!({"id": id}))
}

/// Adds a field that has a value.
fn put<T: serde::Serialize>(object: &mut Value, name: &str, value: Option<T>) {
    if let (Some(fields), Some(value)) = (object.as_object_mut(), value) {
        fields.insert(name.to_owned(), json!(value));
    }
}
