// SPDX-License-Identifier: Apache-2.0

package strictjson

import "testing"

func TestDecode(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"a": 1}`: true, ` {"a": 1} ` + "\n": true, `{}`: true,
		`{"a": 1, "b": 2}`: false, `{"a": 1}{}`: false, `{"a": 1} x`: false, `{"a": "1"}`: false, `{"a": 1`: false, ``: false,
	} {
		var v struct {
			A int `json:"a"`
		}
		if err := Decode([]byte(text), &v); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
