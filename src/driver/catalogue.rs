//! The drivers of a process, and which of them serves a class.

use std::{collections::BTreeMap, sync::Arc};

#[cfg(feature = "simulated")]
use super::simulated;
use super::{
    environment::{Environment, OpenError},
    guard::Guards,
    interface::Driver,
    spec::Problems,
};
use crate::api::machine::MachineClass;

/// The built-in drivers, one line each.
const BUILT_IN: &[BuiltIn] = &[
    #[cfg(feature = "simulated")]
    BuiltIn { provider: simulated::NAME, open: simulated::open },
];

struct BuiltIn {
    provider: &'static str,
    open: fn(&Environment<'_>) -> Result<Arc<dyn Driver>, OpenError>,
}

/// Drivers by their name in `MachineClass.provider` (case-insensitive), each with its [`Guards`].
#[derive(Clone, Default)]
pub(crate) struct Catalogue {
    drivers: BTreeMap<String, Arc<dyn Driver>>,
}

/// No driver serves a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnknownProvider {
    /// This process has no driver for the provider of the class.
    #[error("class {class:?} names provider {provider:?}, which this controller does not serve: {}", advice(.known))]
    Other {
        /// Name of the class.
        class: String,
        /// The provider it names.
        provider: String,
        /// The names of all drivers, in order.
        known: Vec<String>,
    },
    /// The class names none, and there is not exactly one to choose from.
    #[error("class {class:?} names no provider: {}", advice(.known))]
    Missing {
        /// Name of the class.
        class: String,
        /// The names of all drivers, in order.
        known: Vec<String>,
    },
}

impl Catalogue {
    /// The built-in drivers, or only the one of `provider`.
    ///
    /// # Errors
    /// `provider` is not built in, or a driver cannot be opened.
    pub(crate) fn open(
        environment: &Environment<'_>,
        provider: Option<&str>,
        guards: &Guards,
    ) -> Result<Self, OpenError> {
        let chosen = |built_in: &&BuiltIn| provider.is_none_or(|name| name.eq_ignore_ascii_case(built_in.provider));
        let drivers: Vec<_> =
            BUILT_IN.iter().filter(chosen).map(|built_in| (built_in.open)(environment)).collect::<Result<_, _>>()?;
        match provider {
            Some(provider) if drivers.is_empty() => Err(OpenError::NotBuiltIn {
                provider: provider.to_owned(),
                known: BUILT_IN.iter().map(|built_in| built_in.provider).collect(),
            }),
            _ => Ok(Self::of(drivers, guards)),
        }
    }

    /// The given drivers; of two with the same name the later.
    pub(crate) fn of(drivers: impl IntoIterator<Item = Arc<dyn Driver>>, guards: &Guards) -> Self {
        let guarded = |driver: Arc<dyn Driver>| (driver.name().to_ascii_lowercase(), guards.around(driver));
        Self { drivers: drivers.into_iter().map(guarded).collect() }
    }

    /// The driver of a class. A class without a provider gets the only driver, if there is exactly one, because some
    /// drivers of the reference do not check the provider.
    ///
    /// # Errors
    /// No driver has that name.
    pub(crate) fn get(&self, class: &MachineClass) -> Result<Arc<dyn Driver>, UnknownProvider> {
        let provider = class.provider.trim();
        if provider.is_empty() {
            let mut drivers = self.drivers.values();
            return match (drivers.next(), drivers.next()) {
                (Some(only), None) => Ok(Arc::clone(only)),
                _ => Err(UnknownProvider::Missing { class: name_of(class), known: self.names() }),
            };
        }
        self.drivers.get(&provider.to_ascii_lowercase()).cloned().ok_or_else(|| UnknownProvider::Other {
            class: name_of(class),
            provider: provider.to_owned(),
            known: self.names(),
        })
    }

    /// Validates a class with its driver. Makes no cloud call.
    ///
    /// # Errors
    /// No driver serves the class.
    pub(crate) fn validate(&self, class: &MachineClass) -> Result<Problems, UnknownProvider> {
        self.get(class).map(|driver| driver.validate(class))
    }

    /// Names as the drivers spell them, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.drivers.values().map(|driver| driver.name().to_owned()).collect()
    }
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Catalogue").field(&self.names()).finish()
    }
}

fn name_of(class: &MachineClass) -> String {
    class.metadata.name.clone().unwrap_or_default()
}

fn advice(known: &[String]) -> String {
    if known.is_empty() {
        "start it with a driver".to_owned()
    } else {
        format!("set provider to one of: {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        driver::{code::Code, fake::FakeDriver, guard::Observer, operation::Operation},
        simulated_cloud::{Cloud, CloudApi, Control},
    };
    use rstest::rstest;
    use std::time::Duration;

    struct Unobserved;

    impl Observer for Unobserved {
        fn observed(&self, _: &str, _: Operation, _: Duration, _: Result<(), Code>) {}
    }

    fn guards() -> Guards {
        Guards::new(Arc::new(Unobserved))
    }

    fn catalogue(names: &[&'static str]) -> Catalogue {
        Catalogue::of(names.iter().map(|name| Arc::new(FakeDriver::named(name)) as Arc<dyn Driver>), &guards())
    }

    fn class(provider: &str) -> MachineClass {
        let mut class = MachineClass { provider: provider.to_owned(), ..MachineClass::default() };
        class.metadata.name = Some("x".to_owned());
        class
    }

    #[rstest]
    #[case(&["AWS", "simulated"], "AWS", "AWS")]
    #[case(&["AWS", "simulated"], "aws", "AWS")]
    #[case(&["AWS", "simulated"], "Simulated", "simulated")]
    #[case(&["simulated"], "", "simulated")]
    fn a_class_finds_its_driver(#[case] known: &[&'static str], #[case] provider: &str, #[case] expected: &str) {
        assert_eq!(catalogue(known).get(&class(provider)).unwrap().name(), expected);
    }

    #[rstest]
    #[case(&["simulated"], "foo", r#"class "x" names provider "foo", which this controller does not serve: set provider to one of: simulated"#)]
    #[case(&["simulated", "AWS"], "foo", r#"class "x" names provider "foo", which this controller does not serve: set provider to one of: AWS, simulated"#)]
    #[case(&["simulated", "AWS"], "", r#"class "x" names no provider: set provider to one of: AWS, simulated"#)]
    #[case(&[], "foo", r#"class "x" names provider "foo", which this controller does not serve: start it with a driver"#)]
    fn a_refusal_says_what_to_write_instead(
        #[case] known: &[&'static str],
        #[case] provider: &str,
        #[case] expected: &str,
    ) {
        let error = catalogue(known).get(&class(provider)).err().unwrap();
        assert_eq!(error.to_string(), expected);
    }

    fn open(provider: Option<&str>) -> Result<Catalogue, OpenError> {
        let cloud = || Ok(Arc::new(Cloud::new(1, Control::default())) as Arc<dyn CloudApi>);
        Catalogue::open(&Environment { simulated_cloud: &cloud }, provider, &guards())
    }

    #[rstest]
    #[case(None)]
    #[case(Some("simulated"))]
    #[case(Some("Simulated"))]
    #[tokio::test]
    async fn the_built_in_drivers_are_opened_by_name_or_all(#[case] provider: Option<&str>) {
        assert_eq!(open(provider).unwrap().names(), ["simulated"]);
    }

    #[test]
    fn a_provider_that_is_not_built_in_is_refused_with_those_that_are() {
        let text = open(Some("aws")).unwrap_err().to_string();
        assert_eq!(text, "--provider aws is not built in: use one of simulated");
    }

    #[tokio::test]
    async fn a_class_is_validated_by_its_driver() {
        let catalogue = open(None).unwrap();
        let mut class = class("simulated");
        class.provider_spec = serde_json::json!({"zone": 7, "regoin": "x"});
        let problems = catalogue.validate(&class).unwrap();
        assert_eq!((problems.errors.len(), problems.warnings.len()), (1, 1));
        class.provider = "aws".to_owned();
        catalogue.validate(&class).unwrap_err();
    }
}
