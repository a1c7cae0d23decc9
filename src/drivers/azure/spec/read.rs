//! Reads the fields of a `providerSpec`, and reports unknown ones.

use mcm_driver::{
    cloud::{filled, known, number, required_known},
    spec::{ClassProblems, FieldReader, ScalarType, boolean, one_of, text},
};
use serde_json::Value;

use super::types::{DataDisk, Diagnostics, Image, OsDisk, Security, Spec, Subnet};
use crate::clouds::{self, PUBLIC};

const FIELDS: [&str; 6] = ["location", "resourceGroup", "tags", "subnetInfo", "cloudConfiguration", "properties"];
const SUBNET_FIELDS: [&str; 3] = ["vnetName", "subnetName", "vnetResourceGroup"];
const PROPERTIES: [&str; 12] = [
    "hardwareProfile",
    "storageProfile",
    "osProfile",
    "networkProfile",
    "zone",
    "availabilitySet",
    "virtualMachineScaleSet",
    "machineSet",
    "identityID",
    "diagnosticsProfile",
    "securityProfile",
    "capacityReservation",
];
const STORAGE_FIELDS: [&str; 4] = ["imageReference", "osDisk", "dataDisks", "diskControllerType"];
const IMAGE_FIELDS: [&str; 5] =
    ["id", "urn", "communityGalleryImageID", "sharedGalleryImageID", "skipMarketplaceAgreement"];
const OS_DISK_FIELDS: [&str; 5] = ["name", "caching", "managedDisk", "diskSizeGB", "createOption"];
const DATA_DISK_FIELDS: [&str; 6] = ["name", "lun", "caching", "storageAccountType", "diskSizeGB", "imageRef"];
const OS_FIELDS: [&str; 5] = ["computerName", "adminUsername", "adminPassword", "customData", "linuxConfiguration"];
const MANAGED_DISK_FIELDS: [&str; 3] = ["id", "storageAccountType", "securityProfile"];

const CREATE_OPTIONS: [&str; 2] = ["FromImage", "Attach"];
const CONTROLLERS: [&str; 2] = ["SCSI", "NVMe"];
const SECURITY_TYPES: [&str; 2] = ["ConfidentialVM", "TrustedLaunch"];
const ENCRYPTION_TYPES: [&str; 2] = ["DiskWithVMGuestState", "VMGuestStateOnly"];
const AVAILABILITY_SET: &str = "availabilityset";
const SCALE_SET: &str = "vmo";

pub(super) fn spec(value: &Value, problems: &mut ClassProblems) -> Spec {
    if value.is_null() {
        problems.expected("providerSpec", "an object", "nothing");
    }
    let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
    let location = fields.required("location", &word()).unwrap_or_default();
    let resource_group = fields.required("resourceGroup", &word()).unwrap_or_default();
    let tags = fields.map("tags", &text());
    let subnet = fields.required_object("subnetInfo", &SUBNET_FIELDS, |one| Some(subnet(one))).unwrap_or_default();
    let has_cloud = fields.has("cloudConfiguration");
    let named = fields.object("cloudConfiguration", &["name"], |one| one.required("name", &one_of(&clouds::NAMES)));
    let cloud = if has_cloud { named.and_then(clouds::named) } else { Some(PUBLIC) };
    let of_vm = fields.required_object("properties", &PROPERTIES, |one| Some(properties(one))).unwrap_or_default();
    Spec { location, resource_group, tags, subnet, cloud, ..of_vm }
}

fn subnet(fields: &mut FieldReader<'_>) -> Subnet {
    Subnet {
        vnet: fields.required("vnetName", &word()).unwrap_or_default(),
        name: fields.required("subnetName", &word()).unwrap_or_default(),
        resource_group: word_of(fields, "vnetResourceGroup"),
    }
}

/// The fields of the VM, in a class that is otherwise empty.
fn properties(fields: &mut FieldReader<'_>) -> Spec {
    let vm_size = fields.required_object("hardwareProfile", &["vmSize"], |one| one.required("vmSize", &word()));
    let of_storage = fields.required_object("storageProfile", &STORAGE_FIELDS, |one| Some(storage(one)));
    let of_system = fields.required_object("osProfile", &OS_FIELDS, |one| Some(system(one))).unwrap_or_default();
    let of_set = fields.object("machineSet", &["id", "kind"], machine_set);
    let (mut availability_set, mut scale_set) =
        (id_of(fields, "availabilitySet"), id_of(fields, "virtualMachineScaleSet"));
    match of_set {
        Some((AVAILABILITY_SET, id)) if !fields.has("availabilitySet") => availability_set = id,
        Some((SCALE_SET, id)) if !fields.has("virtualMachineScaleSet") => scale_set = id,
        _ => {}
    }
    Spec {
        vm_size: vm_size.unwrap_or_default(),
        accelerated_networking: fields.object(
            "networkProfile",
            &["acceleratedNetworking", "networkInterfaces"],
            |one| one.optional("acceleratedNetworking", &boolean()),
        ),
        zone: fields.optional("zone", &number(0, i32::MAX)),
        availability_set,
        scale_set,
        identity: word_of(fields, "identityID"),
        diagnostics: fields.object("diagnosticsProfile", &["enabled", "storageURI"], |one| {
            Some(Diagnostics { is_enabled: flag(one, "enabled"), storage_uri: word_of(one, "storageURI") })
        }),
        security: fields.object("securityProfile", &["securityType", "uefiSettings"], |one| Some(security(one))),
        capacity_reservation: fields.object("capacityReservation", &["capacityReservationGroupID"], |one| {
            word_of(one, "capacityReservationGroupID")
        }),
        key_path: of_system.key_path,
        key: of_system.key,
        admin: of_system.admin,
        is_without_password: of_system.is_without_password,
        ..of_storage.unwrap_or_default()
    }
}

/// The fields of the disks and the image, in a class that is otherwise empty.
fn storage(fields: &mut FieldReader<'_>) -> Spec {
    let image = fields.required_object("imageReference", &IMAGE_FIELDS, |one| {
        Some((image(one), flag(one, "skipMarketplaceAgreement")))
    });
    let (image, skips_agreement) = image.unwrap_or_default();
    Spec {
        image,
        skips_agreement,
        disk_controller: known(fields, "diskControllerType", &CONTROLLERS),
        os_disk: fields.required_object("osDisk", &OS_DISK_FIELDS, |one| Some(os_disk(one))).unwrap_or_default(),
        data_disks: fields.objects("dataDisks", &DATA_DISK_FIELDS, |one| Some(data_disk(one))),
        ..Spec::default()
    }
}

fn image(fields: &mut FieldReader<'_>) -> Image {
    Image {
        id: word_of(fields, "id"),
        urn: word_of(fields, "urn"),
        community: word_of(fields, "communityGalleryImageID"),
        shared: word_of(fields, "sharedGalleryImageID"),
    }
}

fn os_disk(fields: &mut FieldReader<'_>) -> OsDisk {
    fields.optional("name", &text());
    let managed = fields.object("managedDisk", &MANAGED_DISK_FIELDS, |disk| {
        disk.optional("id", &text());
        let encryption = disk.object("securityProfile", &["securityEncryptionType"], |one| {
            known(one, "securityEncryptionType", &ENCRYPTION_TYPES)
        });
        Some((filled(disk, "storageAccountType"), encryption))
    });
    let (storage_type, encryption) = managed.unwrap_or_default();
    OsDisk {
        create_option: required_known(fields, "createOption", &CREATE_OPTIONS).unwrap_or_default(),
        size: fields.required("diskSizeGB", &number(1, i32::MAX)).unwrap_or_default(),
        caching: filled(fields, "caching"),
        storage_type,
        encryption,
    }
}

fn data_disk(fields: &mut FieldReader<'_>) -> DataDisk {
    DataDisk {
        name: fields.optional("name", &text()).unwrap_or_default(),
        lun: fields.optional("lun", &number(0, i32::MAX)).unwrap_or_default(),
        size: fields.required("diskSizeGB", &number(1, i32::MAX)).unwrap_or_default(),
        caching: filled(fields, "caching"),
        storage_type: fields.required("storageAccountType", &word()).unwrap_or_default(),
        image: fields.object("imageRef", &IMAGE_FIELDS, |one| {
            one.optional("skipMarketplaceAgreement", &boolean());
            Some(image(one))
        }),
    }
}

/// The fields of the administrator, in a class that is otherwise empty.
fn system(fields: &mut FieldReader<'_>) -> Spec {
    for ignored in ["computerName", "adminPassword", "customData"] {
        fields.optional(ignored, &text());
    }
    let linux = fields.object("linuxConfiguration", &["disablePasswordAuthentication", "ssh"], |one| {
        let keys = one.object("ssh", &["publicKeys"], |ssh| {
            ssh.object("publicKeys", &["path", "keyData"], |key| Some((filled(key, "path"), word_of(key, "keyData"))))
        });
        Some((flag(one, "disablePasswordAuthentication"), keys.unwrap_or_default()))
    });
    let (is_without_password, (key_path, key)) = linux.unwrap_or_default();
    let admin = fields.required("adminUsername", &word()).unwrap_or_default();
    Spec { admin, is_without_password, key_path, key, ..Spec::default() }
}

fn security(fields: &mut FieldReader<'_>) -> Security {
    let firmware = fields.object("uefiSettings", &["vtpmEnabled", "secureBootEnabled"], |one| {
        Some((one.optional("vtpmEnabled", &boolean()), one.optional("secureBootEnabled", &boolean())))
    });
    let (tpm, secure_boot) = firmware.unwrap_or_default();
    let kind = known(fields, "securityType", &SECURITY_TYPES);
    Security { kind, has_firmware: firmware.is_some(), tpm, secure_boot }
}

/// An older form of two fields.
fn machine_set(fields: &mut FieldReader<'_>) -> Option<(&'static str, Option<String>)> {
    let kind = fields.required("kind", &one_of(&[AVAILABILITY_SET, SCALE_SET]))?;
    Some((kind, word_of(fields, "id")))
}

fn id_of(fields: &mut FieldReader<'_>, name: &'static str) -> Option<String> {
    fields.object(name, &["id"], |one| word_of(one, "id"))
}

fn flag(fields: &mut FieldReader<'_>, name: &'static str) -> bool {
    fields.optional(name, &boolean()).unwrap_or_default()
}

/// A text; a blank one counts as absent.
fn word_of(fields: &mut FieldReader<'_>, name: &'static str) -> Option<String> {
    filled(fields, name).filter(|text| !text.trim().is_empty())
}

/// A text that is not blank.
fn word() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    ScalarType::new("a string that is not blank", parse)
}
