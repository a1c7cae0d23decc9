mod classes;
mod hand_over;
mod lone;
mod others;
mod paths;
mod pools;
mod refusals;
mod world;

use super::object::Kind;
use mcm_api::kinds::ResourceKind;
use mcm_conversion::{PROVIDERS, ProviderKinds, ProviderRole};

const AWS: &ProviderKinds = &PROVIDERS[0].kinds;
const GCP: &ProviderKinds = &PROVIDERS[1].kinds;

impl Kind {
    const AWS_CLUSTER: Self = Self::Other(AWS, ProviderRole::Cluster);
    const AWS_MACHINE: Self = Self::Other(AWS, ProviderRole::Machine);
    const AWS_TEMPLATE: Self = Self::Other(AWS, ProviderRole::Template);
    const AWS_POOL: Self = Self::Other(AWS, ProviderRole::Pool);
    const GCP_CLUSTER: Self = Self::Other(GCP, ProviderRole::Cluster);
    const GCP_MACHINE: Self = Self::Other(GCP, ProviderRole::Machine);
    const GCP_TEMPLATE: Self = Self::Other(GCP, ProviderRole::Template);
}

#[test]
fn the_kinds_of_each_provider_are_in_the_role_for_mcm_adopt() {
    assert_eq!((AWS.driver, GCP.driver), ("AWS", "GCP"));
    let role =
        include_str!("../../../config/cluster-api/adopt.yaml").lines().filter(|line| line.contains("resources:"));
    let resources: Vec<&str> = role.flat_map(|line| line.split(['[', ']', ',', ' '])).collect();
    for kind in ProviderRole::ALL.into_iter().flat_map(Kind::of_others) {
        let ResourceKind { name, plural, .. } = kind.resource();
        assert!(resources.contains(&plural), "{name} is not in config/cluster-api/adopt.yaml");
    }
}
