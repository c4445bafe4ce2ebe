use super::*;

#[test]
fn the_table_of_rfc_6040_figure_4() {
    // Columns: outer Not-ECT, ECT(0), ECT(1), CE.
    let outers = [NOT_ECT, ECT_0, ECT_1, CE];
    let table = [
        (NOT_ECT, [Some(NOT_ECT), Some(NOT_ECT), Some(NOT_ECT), None]),
        (ECT_0, [Some(ECT_0), Some(ECT_0), Some(ECT_1), Some(CE)]),
        (ECT_1, [Some(ECT_1), Some(ECT_1), Some(ECT_1), Some(CE)]),
        (CE, [Some(CE), Some(CE), Some(CE), Some(CE)]),
    ];
    for (inner, row) in table {
        for (outer, expected) in outers.into_iter().zip(row) {
            assert_eq!(decapsulate(outer, inner), expected, "outer {outer:02b} inner {inner:02b}");
            assert_eq!(decapsulate(outer | 0xfc, inner | 0xfc), expected);
        }
    }
}
