//! The cache of Secrets.

use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;

use crate::{MACHINES, SETS};
use mcm_runtime::{
    cache::{self, ObjectCache},
    kind_cache::KindCache,
};

/// Of Secrets only the metadata is watched.
pub type MetadataOfSecret = PartialObjectMeta<Secret>;

/// How Secrets are cached. Only finalizers depend on them, and those patches carry a resource version. A namespace has many that
/// no class names; of their metadata the controllers of this crate read nothing else.
pub const CACHE: KindCache<MetadataOfSecret> = KindCache::new(|roles| {
    let is_of_this_crate = !roles.is_empty() && roles.iter().all(|role| [SETS, MACHINES].contains(role));
    ObjectCache::new(&[], if is_of_this_crate { cache::keep_identity } else { prune })
})
.without_live_reads();

fn prune(secret: &mut MetadataOfSecret) {
    secret.metadata.managed_fields = None;
    secret.metadata.annotations = None;
}

#[cfg(test)]
mod tests {
    use mcm_runtime::{cache::Key, role::ControllerRole};
    use serde_json::{Value, json};

    use super::*;

    const OF_CLUSTER_API: ControllerRole = ControllerRole { name: "other", lease: "other" };

    /// The cached metadata of a Secret in a process with these roles.
    fn cached(roles: &[ControllerRole]) -> Value {
        let metadata = json!({
            "name": "s", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": {"a": "b"}, "annotations": {"a": "b"},
            "finalizers": ["x"], "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o"}],
        });
        let secrets = CACHE.empty_for(roles);
        secrets.wrote(serde_json::from_value(json!({ "metadata": metadata })).unwrap());
        json!(secrets.get(&Key::new("ns", "s")).unwrap().metadata)
    }

    #[test]
    fn of_secrets_that_nothing_names_little_is_cached() {
        let identity = json!({"name": "s", "namespace": "ns", "uid": "u", "resourceVersion": "1", "finalizers": ["x"]});
        assert_eq!(cached(&[SETS, MACHINES]), identity);
        assert_eq!(cached(&[MACHINES]), identity);
        for roles in [&[OF_CLUSTER_API][..], &[MACHINES, OF_CLUSTER_API]] {
            assert_eq!(cached(roles)["labels"], json!({"a": "b"}), "others find Secrets by their labels");
        }
    }
}
