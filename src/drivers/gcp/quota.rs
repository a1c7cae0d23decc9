//! Quotas of a region, and what a VM takes of them. Pure.

use serde::Deserialize;

use super::spec::{SCRATCH, Spec};
use mcm_driver::inspection::ResourceFinding;

/// A quota, as Google shows it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub(super) struct Quota {
    pub metric: String,
    #[serde(default)]
    pub limit: f64,
    #[serde(default)]
    pub usage: f64,
}

/// The field that causes a need, the metric of its quota, and the amount that a VM takes.
type Need = (&'static str, String, f64);

/// Checks that the quotas have room for one more VM. Quotas that Google does not show are left out.
pub(super) fn quotas(spec: &Spec, cpus: Option<u32>, all: &[Quota]) -> Vec<ResourceFinding> {
    let finding = |(path, metric, needed): Need| {
        let Quota { limit, usage, .. } = all.iter().find(|quota| quota.metric == metric)?;
        let text = format!("quota {metric}: {usage} of {limit} used, a VM takes {needed}");
        Some(if usage + needed > *limit {
            ResourceFinding::missing(path, text)
        } else {
            ResourceFinding::present(path, text)
        })
    };
    needs(spec, cpus, all).into_iter().filter_map(finding).collect()
}

fn needs(spec: &Spec, cpus: Option<u32>, all: &[Quota]) -> Vec<Need> {
    let mut needs = vec![("providerSpec", "INSTANCES".to_owned(), 1.0)];
    if let Some(cpus) = cpus {
        needs.push(("providerSpec.machineType", metric_of_cpus(spec, all), f64::from(cpus)));
    }
    for metric in ["SSD_TOTAL_GB", "DISKS_TOTAL_GB", "LOCAL_SSD_TOTAL_GB"] {
        let sizes = spec.disks.iter().filter(|disk| metric_of_disk(&disk.kind) == Some(metric)).map(|disk| disk.size);
        let size: i64 = sizes.sum();
        if size > 0 {
            needs.push(("providerSpec.disks", metric.to_owned(), as_amount(size)));
        }
    }
    let addresses = spec.network_interfaces.iter().filter(|interface| !interface.disable_external_ip).count();
    if addresses > 0 {
        needs.push(("providerSpec.networkInterfaces", "IN_USE_ADDRESSES".to_owned(), as_amount(addresses)));
    }
    if let Some(gpu) = &spec.gpu {
        let name = gpu.accelerator_type.to_ascii_uppercase().replace('-', "_").replace("_TESLA_", "_");
        needs.push(("providerSpec.gpu", preemptible_or(spec, format!("{name}_GPUS"), all), as_amount(gpu.count)));
    }
    needs
}

/// Newer machine families have separate quotas.
fn metric_of_cpus(spec: &Spec, all: &[Quota]) -> String {
    let family = spec.machine_type.split('-').next().unwrap_or_default().to_ascii_uppercase();
    let own = format!("{family}_CPUS");
    let metric = if all.iter().any(|quota| quota.metric == own) { own } else { "CPUS".to_owned() };
    preemptible_or(spec, metric, all)
}

/// The quota of preemptible VMs counts only if the project has asked for one.
fn preemptible_or(spec: &Spec, metric: String, all: &[Quota]) -> String {
    let general =
        if metric.ends_with("_GPUS") { format!("PREEMPTIBLE_{metric}") } else { "PREEMPTIBLE_CPUS".to_owned() };
    let is_given = all.iter().any(|quota| quota.metric == general && quota.limit > 0.0);
    if spec.scheduling.preemptible && is_given { general } else { metric }
}

fn metric_of_disk(kind: &str) -> Option<&'static str> {
    match kind {
        "pd-ssd" | "pd-balanced" => Some("SSD_TOTAL_GB"),
        "pd-standard" => Some("DISKS_TOTAL_GB"),
        SCRATCH => Some("LOCAL_SSD_TOTAL_GB"),
        _ => None,
    }
}

/// Quotas are floating-point numbers.
fn as_amount(count: impl TryInto<u32>) -> f64 {
    f64::from(count.try_into().unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Disk, Gpu, NetworkInterface};
    use mcm_driver::inspection::ResourcePresence;
    use rstest::rstest;

    fn spec(machine_type: &str, preemptible: bool) -> Spec {
        let mut spec = Spec {
            machine_type: machine_type.to_owned(),
            disks: vec![
                Disk { kind: "pd-ssd".to_owned(), size: 50, ..Disk::default() },
                Disk { kind: "pd-balanced".to_owned(), size: 20, ..Disk::default() },
            ],
            gpu: Some(Gpu { accelerator_type: "nvidia-tesla-t4".to_owned(), count: 2 }),
            network_interfaces: vec![
                NetworkInterface::default(),
                NetworkInterface { disable_external_ip: true, ..NetworkInterface::default() },
            ],
            ..Spec::default()
        };
        spec.scheduling.preemptible = preemptible;
        spec
    }

    fn quota(metric: &str, usage: f64, limit: f64) -> Quota {
        Quota { metric: metric.to_owned(), limit, usage }
    }

    #[rstest]
    #[case::a_family_with_a_quota("n2-standard-8", false, "N2_CPUS")]
    #[case::one_without("e2-standard-8", false, "CPUS")]
    #[case::preemptible("n2-standard-8", true, "PREEMPTIBLE_CPUS")]
    fn cpus_count_against_one_quota(#[case] machine_type: &str, #[case] preemptible: bool, #[case] metric: &str) {
        let all = [quota("N2_CPUS", 0.0, 8.0), quota("CPUS", 0.0, 8.0), quota("PREEMPTIBLE_CPUS", 0.0, 8.0)];
        let found = quotas(&spec(machine_type, preemptible), Some(8), &all);
        let expected = format!("quota {metric}: 0 of 8 used, a VM takes 8");
        assert_eq!(found, [ResourceFinding::present("providerSpec.machineType", expected)]);
    }

    #[test]
    fn preemptible_vms_count_as_others_unless_there_is_a_quota_for_them() {
        let all = [quota("CPUS", 0.0, 8.0), quota("PREEMPTIBLE_CPUS", 0.0, 0.0)];
        let found = quotas(&spec("e2-standard-8", true), Some(8), &all);
        assert!(found[0].text.starts_with("quota CPUS:"), "{found:?}");
    }

    #[rstest]
    #[case("INSTANCES", "providerSpec", 1.0)]
    #[case("CPUS", "providerSpec.machineType", 4.0)]
    #[case("SSD_TOTAL_GB", "providerSpec.disks", 70.0)]
    #[case("IN_USE_ADDRESSES", "providerSpec.networkInterfaces", 1.0)]
    #[case("NVIDIA_T4_GPUS", "providerSpec.gpu", 2.0)]
    fn a_quota_has_room_or_not(#[case] metric: &str, #[case] path: &str, #[case] needed: f64) {
        for (usage, presence) in
            [(100.0 - needed, ResourcePresence::Present), (101.0 - needed, ResourcePresence::Missing)]
        {
            let found = quotas(&spec("e2-standard-4", false), Some(4), &[quota(metric, usage, 100.0)]);
            let text = format!("quota {metric}: {usage} of 100 used, a VM takes {needed}");
            assert_eq!(found, [ResourceFinding { path: path.to_owned(), presence, text }]);
        }
    }
}
