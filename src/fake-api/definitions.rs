//! The definitions of the custom resources, made once from their types.

use std::sync::OnceLock;

use serde_json::Value;

use super::kinds::Kind;
use mcm_api::crd::crds;

/// The served version in the definition of a custom resource.
fn version_of(kind: &Kind) -> Option<&'static Value> {
    static ALL: OnceLock<Vec<Value>> = OnceLock::new();
    let all = ALL.get_or_init(|| crds().iter().map(|crd| serde_json::to_value(crd).unwrap_or_default()).collect());
    let definition = all.iter().find(|crd| {
        crd["spec"]["group"].as_str() == Some(kind.group)
            && crd["spec"]["names"]["plural"].as_str() == Some(kind.plural)
    })?;
    definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"].as_str() == Some(kind.version))
}

/// The schema of a custom resource.
pub(super) fn schema_of(kind: &Kind) -> Option<&'static Value> {
    Some(&version_of(kind)?["schema"]["openAPIV3Schema"])
}

/// The columns of a custom resource after its name.
pub(super) fn columns_of(kind: &Kind) -> &'static [Value] {
    version_of(kind).and_then(|version| version["additionalPrinterColumns"].as_array()).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::ALL;

    #[test]
    fn each_custom_kind_has_a_definition_that_agrees_with_it() {
        let all = crds();
        let custom: Vec<&Kind> = ALL.into_iter().filter(|kind| kind.is_custom).collect();
        assert_eq!(custom.len(), all.len());
        for kind in custom {
            let version = version_of(kind).unwrap();
            let names = all.iter().map(|crd| &crd.spec.names).find(|names| names.plural == kind.plural).unwrap();
            assert_eq!((names.kind.as_str(), names.singular.as_deref()), (kind.name, Some(&*kind.singular())));
            assert_eq!(names.short_names.as_deref().unwrap_or_default(), kind.short_names);
            assert_eq!(version["subresources"].get("status").is_some(), kind.has_status, "{}", kind.plural);
            assert_eq!(version["subresources"].get("scale").is_some(), kind.has_scale, "{}", kind.plural);
            assert!(schema_of(kind).unwrap()["properties"].is_object());
        }
    }
}
