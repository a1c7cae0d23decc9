//! Machines of Cluster API whose image has another Kubernetes version than they. Pure.

use serde_json::Value;

use super::finding::{CheckFinding, count, some_of};
use crate::api::machine::{Machine, MachineClass};
use mcm_insight::story::ByName;

const CHECK: &str = "images";

/// A Machine of Cluster API, and the version that it or its image shows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ImageVersion {
    machine: String,
    /// `spec.version`.
    wanted: KubernetesVersion,
    /// The version of the kubelet or in the name of the image, and where it was read; `None` if neither names one.
    shown: Option<(KubernetesVersion, String)>,
}

/// Minor and patch of a version 1.x; the patch is unknown in a name such as `kubernetes-1-36`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KubernetesVersion {
    minor: u32,
    patch: Option<u32>,
}

impl KubernetesVersion {
    fn differs(self, other: Self) -> bool {
        let have_patches = self.patch.is_some() && other.patch.is_some();
        self.minor != other.minor || (have_patches && self.patch != other.patch)
    }

    /// The version at the start of a text, such as `1.36.0` or `1-36`.
    fn at_start(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('1')?;
        let (minor, rest) = number_after_separator(rest)?;
        let patch = number_after_separator(rest).map(|(patch, _)| patch);
        // Smaller numbers are those of other programs. A date such as 1-2026 has a larger one.
        (20..100).contains(&minor).then_some(Self { minor, patch })
    }

    /// The version in the name of an image, behind `v` or the name of Kubernetes.
    fn in_name(name: &str) -> Option<Self> {
        const MARKS: [&str; 5] = ["kubernetes-", "kube-", "k8s-", "kubernetes", "v"];
        let name = name.to_lowercase();
        let is_start = |index: usize| !name[..index].ends_with(|before: char| before.is_alphanumeric());
        let places = name.char_indices().map(|(index, _)| index).filter(|index| is_start(*index));
        places
            .into_iter()
            .find_map(|index| MARKS.iter().find_map(|mark| Self::at_start(name[index..].strip_prefix(mark)?)))
    }
}

fn number_after_separator(text: &str) -> Option<(u32, &str)> {
    let rest = text.strip_prefix(['.', '-', '_'])?;
    let end = rest.find(|other: char| !other.is_ascii_digit()).unwrap_or(rest.len());
    Some((rest[..end].parse().ok()?, &rest[end..]))
}

/// What Machines of Cluster API, with their MCM Machines and classes, show about versions. Nothing without such Machines.
pub(super) fn images(
    listed: &Result<Vec<Value>, String>,
    natives: &ByName<Machine>,
    classes: &ByName<MachineClass>,
) -> Option<CheckFinding> {
    let machines = match listed {
        Ok(machines) => machines,
        Err(cause) => return Some(CheckFinding::unknown(CHECK, format!("Machines of Cluster API not read: {cause}"))),
    };
    let all: Vec<ImageVersion> =
        machines.iter().filter_map(|machine| ImageVersion::read(machine, natives, classes)).collect();
    if all.is_empty() {
        return None;
    }
    let differs = |one: &&ImageVersion| one.shown.as_ref().is_some_and(|(shown, _)| one.wanted.differs(*shown));
    let wrong: Vec<String> = all
        .iter()
        .filter(differs)
        .map(|one| format!("{} ({})", one.machine, one.shown.as_ref().map_or("", |(_, place)| place)))
        .collect();
    let known = all.iter().filter(|one| one.shown.is_some()).count();
    if wrong.is_empty() {
        let text = format!(
            "those of {} have the version of the Machine; {known} could be compared",
            count(all.len(), "Machine")
        );
        return Some(CheckFinding::good(CHECK, text));
    }
    let text = format!("the image has another Kubernetes version than the Machine: {}", some_of(&wrong));
    Some(CheckFinding::note(CHECK, text).then("change image and version together, see docs/cluster-api/upgrade.md"))
}

impl ImageVersion {
    fn read(machine: &Value, natives: &ByName<Machine>, classes: &ByName<MachineClass>) -> Option<Self> {
        let text = |pointer: &str| machine.pointer(pointer).and_then(Value::as_str);
        if text("/spec/infrastructureRef/kind")? != "MCMMachine" {
            return None;
        }
        let version = text("/spec/version")?;
        let wanted = KubernetesVersion::at_start(version.strip_prefix('v').unwrap_or(version))?;
        let kubelet = text("/status/nodeInfo/kubeletVersion").and_then(|kubelet| {
            let shown = KubernetesVersion::at_start(kubelet.strip_prefix('v')?)?;
            Some((shown, format!("version {version}, kubelet {kubelet}")))
        });
        let of_image = || {
            let name = text("/spec/infrastructureRef/name")?;
            let class = natives.get(name).map_or(name, |native| native.spec.class.name.as_str());
            let images = image_names(&classes.get(class)?.provider_spec);
            images.into_iter().find_map(|image| {
                Some((KubernetesVersion::in_name(image)?, format!("version {version}, image {image}")))
            })
        };
        let machine = text("/metadata/name")?.to_owned();
        Some(Self { machine, wanted, shown: kubelet.or_else(of_image) })
    }
}

/// Texts of a class that may name an image, at any depth.
fn image_names(spec: &Value) -> Vec<&str> {
    match spec {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value.as_str() {
                Some(text) if name.to_lowercase().contains("image") || name == "template" => vec![text],
                Some(_) => Vec::new(),
                None => image_names(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(image_names).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::cli::check::finding::CheckLevel;

    #[rstest]
    #[case("projects/p/global/images/cluster-api-ubuntu-2404-v1-36-0-nightly", Some((36, Some(0))))]
    #[case("ubuntu-2404-kube-v1.36.12", Some((36, Some(12))))]
    #[case("projects/p/global/images/kubernetes-1-36", Some((36, None)))]
    #[case("flatcar-k8s-1.37", Some((37, None)))]
    #[case("ami-0123456789abcdef0", None)]
    #[case("ubuntu-24.04", None)]
    #[case("image-v1.2.3", None)]
    #[case("v1-2026-01-01", None)]
    #[case("garden-linux-1592.2.0", None)]
    fn the_version_in_the_name_of_an_image(#[case] name: &str, #[case] expected: Option<(u32, Option<u32>)>) {
        let found = KubernetesVersion::in_name(name).map(|version| (version.minor, version.patch));
        assert_eq!(found, expected);
    }

    fn finding(kubelet: &str, image: &str) -> Option<CheckFinding> {
        let machine = json!({
            "metadata": { "name": "cp-1" },
            "spec": { "version": "v1.37.0", "infrastructureRef": { "kind": "MCMMachine", "name": "cp-1" } },
            "status": { "nodeInfo": { "kubeletVersion": kubelet } },
        });
        let class = json!({
            "metadata": { "name": "cp" }, "providerSpec": { "disks": [{ "boot": true, "image": image }] },
        });
        let native = json!({ "metadata": { "name": "cp-1" }, "spec": { "class": { "name": "cp" } } });
        let natives = [("cp-1".to_owned(), serde_json::from_value(native).unwrap())].into();
        let classes = [("cp".to_owned(), serde_json::from_value(class).unwrap())].into();
        images(&Ok(vec![machine]), &natives, &classes)
    }

    #[rstest]
    #[case::upgraded_without_its_image("v1.36.0", "x", Some("cp-1 (version v1.37.0, kubelet v1.36.0)"))]
    #[case::patch("v1.37.1", "x", Some("cp-1 (version v1.37.0, kubelet v1.37.1)"))]
    #[case::before_the_node("", "kube-v1.36.0", Some("cp-1 (version v1.37.0, image kube-v1.36.0)"))]
    #[case::the_kubelet_decides("v1.37.0", "kube-v1.36.0", None)]
    #[case::distribution("v1.37.0+rke2r1", "x", None)]
    #[case::unreadable("", "ami-1", None)]
    fn an_image_of_another_version_is_a_note(
        #[case] kubelet: &str,
        #[case] image: &str,
        #[case] expected: Option<&str>,
    ) {
        let found = finding(kubelet, image).unwrap();
        match expected {
            Some(text) => assert!(found.result == CheckLevel::Note && found.text.ends_with(text), "{}", found.text),
            None => assert_eq!(found.result, CheckLevel::Good, "{}", found.text),
        }
    }

    #[test]
    fn only_machines_of_the_provider_are_compared() {
        let other = json!({
            "metadata": { "name": "m" },
            "spec": { "version": "v1.37.0", "infrastructureRef": { "kind": "AWSMachine", "name": "m" } },
            "status": { "nodeInfo": { "kubeletVersion": "v1.36.0" } },
        });
        assert_eq!(images(&Ok(vec![other]), &ByName::new(), &ByName::new()), None);
        let unread = images(&Err("403 Forbidden".to_owned()), &ByName::new(), &ByName::new()).unwrap();
        assert_eq!(unread.result, CheckLevel::Unknown);
    }
}
