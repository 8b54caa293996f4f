package sim
import ("testing";"fmt")
func TestDbg(t *testing.T){ c:=drawCause(t,*fromSeed); fmt.Println(c.text); for _,f:=range c.faults.List(0){fmt.Printf("%+v\n",f)}; err:=c.check(); fmt.Println(err); for m:=range c.sizes{ fmt.Println(m,c.roots[m],c.sizes[m],c.at[m],c.apart[m]) } }
