// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"math"
	"reflect"
)

// verify checks a lab that was not read from a file. It returns an error for a value that no file
// can give, and for values that do not go together, as reading a file does. A file that the lab
// names, such as HPL.dat, is not read: naming it is an error.
func (l *Lab) verify() error {
	if err := ranges("", reflect.ValueOf(l).Elem()); err != nil {
		return err
	}
	if mistakes := l.check("", &binder{at: map[string]pos{}, spoilt: spoilt{}}, Reader{}); len(mistakes) > 0 {
		return errors.New(mistakes[0].Text)
	}
	return nil
}

// ranges repeats the binder's checks of files: the range of each single value, and that a word that has
// a default is there.
func ranges(path string, v reflect.Value) error {
	if _, ok := v.Addr().Interface().(textual); ok {
		// What a value prints reads back as the same value, unless it is out of range.
		again := reflect.New(v.Type())
		if err := again.Interface().(textual).Set(fmt.Sprint(v.Interface())); err != nil || again.Elem().Interface() != v.Interface() {
			return fmt.Errorf("%s cannot be %v", path, v)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return ranges(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := ranges(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f, tag := v.Field(i), v.Type().Field(i).Tag
			at := join(path, tag.Get("yaml"))
			if f.Kind() == reflect.String && f.Len() == 0 && tag.Get("default") != "" {
				return fmt.Errorf("%s is missing", at)
			}
			if err := ranges(at, f); err != nil {
				return err
			}
		}
	case reflect.Int:
		if n := v.Int(); n < math.MinInt32 || n > math.MaxInt32 {
			return fmt.Errorf("%s cannot be %d", path, n)
		}
	}
	return nil
}
