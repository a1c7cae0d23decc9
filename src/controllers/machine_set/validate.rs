use mcm_api::{
    machine::{MOST_REPLICAS, MachineSet},
    selector::{InvalidSelector, Selector},
};

/// A valid set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValidSet {
    /// Selects the Machines of the set.
    pub(super) selector: Selector,
    /// Desired replicas.
    pub(super) replicas: usize,
}

/// Why a set is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidSet {
    #[error("spec.replicas is {0}: set it to 0 or more")]
    NegativeReplicas(i32),
    #[error("spec.replicas is {0}: set it to {MOST_REPLICAS} or less")]
    TooManyReplicas(i32),
    #[error("spec.selector is missing: set matchLabels to labels of the template")]
    NoSelector,
    /// Such a set would adopt every Machine of its namespace that has no controller.
    #[error("spec.selector is empty and selects every machine: set matchLabels to labels of the template")]
    SelectsAll,
    #[error("spec.{0}")]
    Selector(InvalidSelector),
    #[error("spec.template.metadata.labels is empty: set the labels of the selector")]
    NoLabels,
    /// Machines created from the template would be released immediately and created again without end.
    #[error("spec.selector does not match spec.template.metadata.labels: make the two agree")]
    SelectorMismatch,
    #[error("spec.template.spec.class.kind is empty: set it to MachineClass")]
    NoClassKind,
    #[error("spec.template.spec.class.name is empty: name a MachineClass")]
    NoClassName,
}

/// Checks a set before anything is done for it.
///
/// # Errors
/// The first problem found.
pub(super) fn validate(set: &MachineSet) -> Result<ValidSet, InvalidSet> {
    let spec = &set.spec;
    let replicas = usize::try_from(spec.replicas).map_err(|_| InvalidSet::NegativeReplicas(spec.replicas))?;
    if spec.replicas > MOST_REPLICAS {
        return Err(InvalidSet::TooManyReplicas(spec.replicas));
    }
    let selector = Selector::parse(spec.selector.as_ref()).map_err(InvalidSet::Selector)?;
    if selector.selects_none() {
        return Err(InvalidSet::NoSelector);
    }
    if selector.selects_all() {
        return Err(InvalidSet::SelectsAll);
    }
    let labels = &spec.template.metadata.labels;
    if labels.is_empty() {
        return Err(InvalidSet::NoLabels);
    }
    if !selector.matches(Some(labels)) {
        return Err(InvalidSet::SelectorMismatch);
    }
    if spec.template.spec.class.kind.is_empty() {
        return Err(InvalidSet::NoClassKind);
    }
    if spec.template.spec.class.name.is_empty() {
        return Err(InvalidSet::NoClassName);
    }
    Ok(ValidSet { selector, replicas })
}
