//! Quantities of resources.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Compares quantities by value, because the API server normalizes them: `1000m` to `1`, less than a billionth to that, and
/// more than an `i64` to the largest one.
pub fn is_same_quantity(a: &Quantity, b: &Quantity) -> bool {
    const LARGEST: f64 = 9_223_372_036_854_775_807.0;
    match (quantity_amount(a), quantity_amount(b)) {
        (Some(a), Some(b)) => {
            let (a, b) = (a.min(LARGEST), b.min(LARGEST));
            (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
        }
        _ => a == b,
    }
}

/// The amount of a quantity in its unit; `None` for other texts.
pub fn quantity_amount(quantity: &Quantity) -> Option<f64> {
    const UNITS: [(&str, f64); 15] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let text = quantity.0.as_str();
    let unit = UNITS.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)));
    let (number, scale) = unit.unwrap_or((text, 1.0));
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("1000m", "1", true)]
    #[case("8Gi", "8192Mi", true)]
    #[case("8Gi", "8G", false)]
    #[case("4", "2", false)]
    #[case("many", "many", true)]
    #[case("many", "1", false)]
    fn quantities_are_compared_by_their_amount(#[case] a: &str, #[case] b: &str, #[case] expected: bool) {
        assert_eq!(is_same_quantity(&Quantity(a.to_owned()), &Quantity(b.to_owned())), expected);
    }
}
