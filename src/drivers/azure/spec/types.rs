//! A `providerSpec` after it was read. Fields that are wrong have their default.

use std::collections::BTreeMap;

use mcm_driver::{Code, DriverError, cloud::ClassMarkers};

use crate::{
    clouds::Cloud,
    names::{MARKERS, marker_keys},
};

/// A `providerSpec`. Texts that a class leaves empty are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    pub location: String,
    pub resource_group: String,
    /// Tags of the VM, its network interface and its disks; without the tags that only mcm sets.
    pub tags: BTreeMap<String, String>,
    pub subnet: Subnet,
    /// `None` if the class names one that does not exist.
    pub cloud: Option<&'static Cloud>,
    pub vm_size: String,
    pub image: Image,
    /// The marketplace is not asked for the terms of the image.
    pub skips_agreement: bool,
    pub disk_controller: Option<String>,
    pub os_disk: OsDisk,
    pub data_disks: Vec<DataDisk>,
    pub admin: String,
    pub is_without_password: bool,
    /// Path and text of the public key of the administrator.
    pub key_path: Option<String>,
    pub key: Option<String>,
    pub accelerated_networking: Option<bool>,
    pub zone: Option<i32>,
    pub availability_set: Option<String>,
    pub scale_set: Option<String>,
    /// Resource ID of a user-assigned identity.
    pub identity: Option<String>,
    pub diagnostics: Option<Diagnostics>,
    pub security: Option<Security>,
    /// Resource ID.
    pub capacity_reservation: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub vnet: String,
    pub name: String,
    /// Of the virtual network; that of the class if it is absent.
    pub resource_group: Option<String>,
}

/// An image. A valid one has exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub id: Option<String>,
    /// `publisher:offer:sku:version`
    pub urn: Option<String>,
    pub community: Option<String>,
    pub shared: Option<String>,
}

/// An image of the marketplace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Urn<'a> {
    pub publisher: &'a str,
    pub offer: &'a str,
    pub sku: &'a str,
    pub version: &'a str,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OsDisk {
    pub create_option: String,
    pub size: i32,
    pub caching: Option<String>,
    pub storage_type: Option<String>,
    pub encryption: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataDisk {
    pub name: String,
    pub lun: i32,
    pub size: i32,
    pub caching: Option<String>,
    pub storage_type: String,
    /// The disk is created from an image before the VM.
    pub image: Option<Image>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Diagnostics {
    pub is_enabled: bool,
    pub storage_uri: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Security {
    pub kind: Option<String>,
    /// The class has firmware settings, even without a value.
    pub has_firmware: bool,
    pub tpm: Option<bool>,
    pub secure_boot: Option<bool>,
}

/// Where resources of a class are, and how they differ from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub location: String,
    pub resource_group: String,
    /// In lower case: Azure's tags are the same in any case.
    pub markers: ClassMarkers,
}

impl Image {
    /// All that are given.
    pub fn given(&self) -> usize {
        [&self.id, &self.urn, &self.community, &self.shared].into_iter().flatten().count()
    }

    /// The four parts of the URN, if it is valid.
    pub fn urn(&self) -> Option<Urn<'_>> {
        let parts: Vec<&str> = self.urn.as_deref()?.split(':').collect();
        let [publisher, offer, sku, version] = parts[..] else { return None };
        let is_filled = parts.iter().all(|part| !part.trim().is_empty());
        is_filled.then_some(Urn { publisher, offer, sku, version })
    }
}

impl DataDisk {
    /// Its name at a VM.
    pub fn name_at(&self, vm: &str) -> String {
        format!("{vm}{}", self.suffix())
    }

    /// The VM with a data disk of this name, if it is this one.
    pub fn vm_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_suffix(&self.suffix())
    }

    fn suffix(&self) -> String {
        match self.name.as_str() {
            "" => format!("-{}-data-disk", self.lun),
            name => format!("-{name}-{}-data-disk", self.lun),
        }
    }
}

impl Spec {
    /// Resource group of the virtual network.
    pub fn network_group(&self) -> &str {
        self.subnet.resource_group.as_deref().unwrap_or(&self.resource_group)
    }

    /// The parts that look-ups and deletions need. Other fields may be wrong: a VM can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no location, resource group or marker tags.
    pub fn scope(&self) -> Result<Scope, DriverError> {
        let lower: Vec<String> = self.tags.keys().map(|key| key.to_ascii_lowercase()).collect();
        let markers = ClassMarkers::from_keys(marker_keys(lower.iter().map(String::as_str)), MARKERS);
        let is_plain = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
        match markers {
            Some(markers)
                if is_plain(&self.resource_group)
                    && is_plain(&self.location)
                    && is_plain(&markers.cluster)
                    && is_plain(&markers.role) =>
            {
                let (location, resource_group) = (self.location.clone(), self.resource_group.clone());
                Ok(Scope { location, resource_group, markers })
            }
            _ => {
                let message = format!(
                    "the class needs providerSpec.location, providerSpec.resourceGroup and tags that begin with {} and {}: without \
                     them its VMs could not be told from others",
                    MARKERS.cluster, MARKERS.role
                );
                Err(DriverError::new(Code::InvalidArgument, message))
            }
        }
    }
}
