//! The capacity of a VM of a class: that of its type, its root disk, and the zone of its subnet.

use std::collections::BTreeSet;

use aws_sdk_ec2::types::{ArchitectureType, InstanceTypeInfo};

use super::{
    calls::{Ec2, filter},
    kind::reading,
    session::Session,
    spec::{CpuOptions, ROOT_DEVICE, Spec},
};
use mcm_driver::{
    DriverError,
    capacity::{GpuCapacity, VmCapacity, architecture},
    code::Code,
};

/// All that the capacity depends on; `None` for a class without region or type.
pub(super) fn capacity_key(spec: &Spec) -> Option<String> {
    let Spec { region, machine_type, cpu_options, .. } = spec;
    let cpus = cpu_options.as_ref().map(|options| (options.core_count, options.threads_per_core));
    let known = !region.is_empty() && !machine_type.is_empty();
    known.then(|| format!("{region} {machine_type} {cpus:?} {:?} {:?} {:?}", root_disk(spec), zone(spec), subnet(spec)))
}

impl Session {
    /// The capacity of a VM.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the region does not offer the type.
    pub(super) async fn capacity(&self) -> Result<VmCapacity, DriverError> {
        let Spec { region, machine_type: name, .. } = &self.spec;
        let found = self.ec2.instance_type(name).await?;
        let Some(info) = found else {
            return Err(DriverError::new(Code::InvalidArgument, format!("{region} does not offer {name}")));
        };
        let incomplete = || {
            let message = format!("DescribeInstanceTypes of {name} failed: the answer has no CPUs or no memory");
            DriverError::new(Code::Internal, message)
        };
        let memory_mib = info.memory_info().and_then(|memory| memory.size_in_mib());
        let memory_mib = memory_mib.and_then(|size| size.try_into().ok()).ok_or_else(incomplete)?;
        Ok(VmCapacity {
            instance_type: name.clone(),
            region: region.clone(),
            zone: self.zone().await,
            cpus: cpus(&info, self.spec.cpu_options.as_ref()).ok_or_else(incomplete)?,
            memory_mib,
            gpus: Some(gpus(&info)),
            architecture: words(&info).find_map(|word| architecture(word.as_str())),
            disk_gib: root_disk(&self.spec),
        })
    }

    /// The zone of the class, or that of its subnet. Without the permission to read the subnet it is not known.
    async fn zone(&self) -> Option<String> {
        if let Some(zone) = zone(&self.spec) {
            return Some(zone.to_owned());
        }
        let wanted = subnet(&self.spec)?;
        let found = self.ec2.zone_of_subnet(wanted).await;
        found.inspect_err(|error| tracing::debug!(%error, "zone of subnet not known")).ok().flatten()
    }
}

/// The words of EC2 for the architectures of a type.
fn words(info: &InstanceTypeInfo) -> impl Iterator<Item = &ArchitectureType> {
    info.processor_info().into_iter().flat_map(|processor| processor.supported_architectures())
}

/// Virtual CPUs: those of the type, unless the class chooses cores and threads.
fn cpus(info: &InstanceTypeInfo, options: Option<&CpuOptions>) -> Option<u64> {
    let of_type = info.v_cpu_info()?;
    let cpus = match options.and_then(|options| options.core_count) {
        Some(cores) => {
            let threads = options.and_then(|options| options.threads_per_core);
            cores.checked_mul(threads.or(of_type.default_threads_per_core())?)?
        }
        None => of_type.default_v_cpus()?,
    };
    cpus.try_into().ok()
}

fn gpus(info: &InstanceTypeInfo) -> GpuCapacity {
    let all = info.gpu_info().map(|info| info.gpus()).unwrap_or_default();
    let Some(first) = all.first() else { return GpuCapacity::NONE };
    let count = all.iter().filter_map(|one| u64::try_from(one.count()?).ok()).sum();
    GpuCapacity::made_by(first.manufacturer().unwrap_or_default(), count)
}

/// The size of the root disk, if the class gives it.
fn root_disk(spec: &Spec) -> Option<u64> {
    let devices = &spec.block_devices;
    let root = devices.iter().find(|device| device.device_name == ROOT_DEVICE || devices.len() == 1)?;
    u64::try_from(root.volume_size).ok().filter(|size| *size > 0)
}

fn zone(spec: &Spec) -> Option<&str> {
    spec.placement.as_ref()?.availability_zone.as_deref()
}

fn subnet(spec: &Spec) -> Option<&str> {
    spec.network_interfaces.first().map(|interface| interface.subnet_id.as_str()).filter(|id| !id.is_empty())
}

impl Ec2 {
    /// A type. Unlike the parameter, the filter does not fail for a type that does not exist.
    async fn instance_type(&self, name: &str) -> Result<Option<InstanceTypeInfo>, DriverError> {
        let send = || self.account.ec2.describe_instance_types().filters(filter("instance-type", [name])).send();
        let what = format!("DescribeInstanceTypes of {name}");
        self.call(&what, reading("instance_types_get"), send, |answer| Some(answer.instance_types?.into_iter().next()))
            .await
    }

    async fn zone_of_subnet(&self, id: &str) -> Result<Option<String>, DriverError> {
        let found = self.subnets(&BTreeSet::from([&id.to_owned()])).await?;
        Ok(found.into_iter().next().map(|subnet| subnet.zone))
    }
}
